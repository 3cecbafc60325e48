//! What JSON's texts stand for in Protobuf's mapping: numbers, bytes and times; and that what is written is read alike.
use nearcall_wire::json::{
    Token, Tokens, Writer, base64, duration, finite, float, integer, is_number, timestamp, whole,
};
use nearcall_wire::protobuf::Scalar;

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(bytes: &[u8]) {
    // Whatever bytes are sent are read back.
    let quoted = written(|out| out.base64(bytes));
    assert_eq!(base64(quoted.trim_matches('"')).as_deref(), Ok(bytes));
    if let Some((&[a, b, c, d, e, f, g, h], rest)) = bytes.split_first_chunk::<8>() {
        numbers(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        if let Some((&[a, b, c, d], _)) = rest.split_first_chunk::<4>() {
            points(u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([a, b, c, d]));
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let json = written(|out| out.text(text));
    assert_eq!(serde_json::from_str::<String>(&json).ok().as_deref(), Some(text));
    if let Ok(bytes) = base64(text) {
        assert!(bytes.len() <= text.len());
    }
    number(text);
    tokens(text);
    let _ = float(text);
    if let Ok((seconds, nanos)) = timestamp(text) {
        let again = written(|out| out.timestamp(seconds, nanos));
        assert_eq!(timestamp(again.trim_matches('"')), Ok((seconds, nanos)));
    }
    if let Ok((seconds, nanos)) = duration(text) {
        let again = written(|out| out.duration(seconds, nanos));
        assert_eq!(duration(again.trim_matches('"')), Ok((seconds, nanos)));
    }
}

fn numbers(bits: u64) {
    let value = f64::from_bits(bits);
    let text = written(|out| out.float(Scalar::Double, value));
    let back = float(text.trim_matches('"')).expect("it was written");
    assert!(back.to_bits() == bits || (back.is_nan() && value.is_nan()));
    let narrow = value as f32;
    let text = written(|out| out.float(Scalar::Float, narrow.into()));
    let back = float(text.trim_matches('"')).expect("it was written") as f32;
    assert!(back.to_bits() == narrow.to_bits() || (back.is_nan() && narrow.is_nan()));
    if let Some(whole) = whole(value) {
        assert_eq!(whole.to_string(), format!("{:.0}", value + 0.0));
    }
    for scalar in [Scalar::Int64, Scalar::Uint64, Scalar::Int32] {
        let value = if scalar == Scalar::Uint64 { bits.into() } else { bits.cast_signed().into() };
        let mut fits = false;
        let text = written(|out| fits = out.int(scalar, value));
        let text = text.trim_matches('"');
        assert_eq!(is_number(text), fits);
        if fits {
            assert_eq!(integer(text), Some(value));
        }
    }
}

fn number(text: &str) {
    let theirs: Result<serde_json::Number, _> = serde_json::from_str(text);
    if !is_number(text) {
        assert!(text.trim() != text || theirs.is_err());
        return;
    }
    // They refuse what is beyond all doubles.
    assert!(theirs.err().is_none_or(|error| error.to_string().starts_with("number out of range")));
    if let Some(value) = finite(text) {
        assert_eq!(text.parse(), Ok(value));
    }
    let whole = integer(text);
    if let (Ok(value), true) = (text.parse::<i128>(), text.len() <= 38) {
        assert_eq!(whole, Some(value));
    }
    if let Some(whole) = whole.filter(|whole| whole.unsigned_abs() < i128::MAX as u128) {
        assert_eq!(finite(text), Some(whole as f64));
        assert_eq!(integer(&whole.to_string()), Some(whole));
    }
}

/// The tokens of a text are there if another reader takes it for JSON.
fn tokens(text: &str) {
    let mut tokens = Tokens::new(text);
    let Some(ours) = walk(&mut tokens, 0) else { return };
    let ours = ours.and_then(|()| tokens.end());
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => assert_eq!(ours, Ok(())),
        Err(error) => assert!(ours.is_err() || error.to_string().starts_with("number out of range")),
    }
}

/// `None` if the text is too deep to say.
fn walk(tokens: &mut Tokens<'_>, depth: usize) -> Option<Result<(), String>> {
    if depth > 100 {
        return None;
    }
    let (token, mut first) = (tokens.token(), true);
    loop {
        let more = match &token {
            Ok(Token::Array) => tokens.item(first),
            Ok(Token::Object) => tokens.key(first).map(|key| key.is_some()),
            Ok(_) => return Some(Ok(())),
            Err(why) => return Some(Err(why.clone())),
        };
        match more {
            Ok(true) => match walk(tokens, depth + 1)? {
                Ok(()) => first = false,
                failed => return Some(failed),
            },
            done => return Some(done.map(drop)),
        }
    }
}

fn points(seconds: u64, nanos: u32) {
    let nanos = i64::from(nanos) % 1_000_000_000;
    let seconds = (seconds % 315_537_897_600).cast_signed() - 62_135_596_800;
    let text = written(|out| out.timestamp(seconds, nanos));
    assert_eq!(timestamp(text.trim_matches('"')), Ok((seconds, nanos)));
    let nanos = if seconds < 0 { -nanos } else { nanos };
    let text = written(|out| out.duration(seconds, nanos));
    assert_eq!(duration(text.trim_matches('"')), Ok((seconds, nanos)));
}

fn written(write: impl FnOnce(&mut Writer)) -> String {
    let mut out = Writer::default();
    write(&mut out);
    String::from_utf8(out.as_bytes().to_vec()).expect("JSON is UTF-8")
}

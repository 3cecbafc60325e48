//! What JSON's texts stand for in Protobuf's mapping: numbers, bytes and times; and that what is written is read alike.
use nearcall_wire::json::{Numeral, Writer, base64, duration, float, number, timestamp, whole};
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
    match number(text) {
        Some(Numeral::Int(value)) => assert_eq!(text.parse(), Ok(value)),
        Some(Numeral::Float(value)) => assert_eq!(text.parse(), Ok(value)),
        None => assert!(text.trim() != text || serde_json::from_str::<f64>(text).is_err()),
    }
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
        let back = number(text.trim_matches('"'));
        assert_eq!(back, fits.then_some(Numeral::Int(value)));
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

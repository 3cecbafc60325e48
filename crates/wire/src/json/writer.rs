//! Writes JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::texts::whole;
use crate::protobuf::Scalar;

/// Appends values to JSON without blanks. It adds commas where [`separate`](Self::separate) is called; the caller has
/// to close brackets.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A writer with some room.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// The bytes that were written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes that were written, as a vector.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends raw JSON: a part of an object, an array or a text, such as `{`, `[`, `"`, or a key that needs no
    /// escapes.
    #[inline]
    pub fn raw(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends a comma, unless the first key or item follows.
    #[inline]
    pub fn separate(&mut self) {
        // A text that ends with `{` or `[` is followed by its quote.
        if !matches!(self.bytes.last(), None | Some(b'{' | b'[')) {
            self.bytes.push(b',');
        }
    }

    /// Appends a text.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.serialize(text);
    }

    /// Appends `true` or `false`.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    /// Appends an integer, in quotes if its type has 64 bits, because JavaScript's numbers are exact only up to 53
    /// bits. If the value does not fit the type, appends nothing and returns `false`.
    #[inline]
    #[must_use]
    pub fn int(&mut self, scalar: Scalar, value: i128) -> bool {
        let Some((least, greatest)) = scalar.range() else { return false };
        if value < least || value > greatest {
            return false;
        }
        let quoted = scalar.is_wide();
        if quoted {
            self.bytes.push(b'"');
        }
        match i64::try_from(value) {
            Ok(value) => self.serialize(&value),
            Err(_) => self.serialize(&(value as u64)),
        }
        if quoted {
            self.bytes.push(b'"');
        }
        true
    }

    /// Appends a number of the type `float` or `double`, in the shortest form that reads as the same number.
    #[inline]
    pub fn float(&mut self, scalar: Scalar, value: f64) {
        if value.is_nan() {
            self.raw("\"NaN\"");
        } else if value.is_infinite() {
            self.raw(if value > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" });
        } else if scalar == Scalar::Float {
            self.serialize(&(value as f32));
        } else {
            self.serialize(&value);
        }
    }

    /// Appends a finite number where any value is allowed: without a fraction if it has none.
    pub fn number(&mut self, value: f64) {
        match whole(value) {
            Some(whole) if whole != 0 || value.is_sign_positive() => self.serialize(&whole),
            _ => self.serialize(&value),
        }
    }

    /// Appends bytes, in base64.
    pub fn base64(&mut self, bytes: &[u8]) {
        self.bytes.push(b'"');
        let begin = self.bytes.len();
        self.bytes.resize(begin + bytes.len().div_ceil(3) * 4, 0);
        let written = STANDARD.encode_slice(bytes, &mut self.bytes[begin..]);
        written.expect("four characters for every three bytes that were begun");
        self.bytes.push(b'"');
    }

    fn serialize<T: Serialize + ?Sized>(&mut self, value: &T) {
        serde_json::to_writer(&mut self.bytes, value).expect("a text or a finite number, into memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer)) -> String {
        let mut out = Writer::default();
        write(&mut out);
        String::from_utf8(out.as_bytes().to_vec()).expect("JSON is UTF-8")
    }

    #[test]
    fn integers_of_64_bits_are_in_quotes() {
        assert_eq!(written(|out| assert!(out.int(Scalar::Int32, -1))), "-1");
        assert_eq!(written(|out| assert!(out.int(Scalar::Sint64, i64::MIN.into()))), "\"-9223372036854775808\"");
        assert_eq!(written(|out| assert!(out.int(Scalar::Fixed64, u64::MAX.into()))), "\"18446744073709551615\"");
        assert_eq!(written(|out| assert!(!out.int(Scalar::Uint32, 1 << 32))), "");
        assert_eq!(written(|out| assert!(!out.int(Scalar::Uint64, -1))), "");
    }

    #[test]
    fn floats_are_written_as_short_as_they_can_be() {
        assert_eq!(written(|out| out.float(Scalar::Float, f64::from(0.1_f32))), "0.1");
        assert_eq!(written(|out| out.float(Scalar::Double, f64::from(0.1_f32))), "0.10000000149011612");
        assert_eq!(written(|out| out.float(Scalar::Double, -0.0)), "-0.0");
        assert_eq!(written(|out| out.float(Scalar::Double, f64::NEG_INFINITY)), "\"-Infinity\"");
        assert_eq!(written(|out| out.float(Scalar::Float, f64::NAN)), "\"NaN\"");
        assert_eq!(written(|out| out.number(-3.0)), "-3");
        assert_eq!(written(|out| out.number(-0.0)), "-0.0");
        assert_eq!(written(|out| out.number(1e300)), "1e+300");
    }

    #[test]
    fn texts_are_escaped_and_bytes_are_base64() {
        assert_eq!(written(|out| out.text("a\"\\\u{7}\n\u{e9}\u{2028}")), "\"a\\\"\\\\\\u0007\\n\u{e9}\u{2028}\"");
        for len in 0..10 {
            let bytes: Vec<u8> = (0..len).collect();
            let text = written(|out| out.base64(&bytes));
            assert_eq!(super::super::base64(text.trim_matches('"')), Ok(bytes));
        }
    }

    #[test]
    fn commas_come_between_items_only() {
        let list = written(|out| {
            out.raw("[");
            for text in ["", "[", "x"] {
                out.separate();
                out.text(text);
            }
            out.raw("]");
        });
        assert_eq!(list, r#"["","[","x"]"#);
    }
}

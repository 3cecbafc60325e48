//! Reads numbers and bytes from texts.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Numeral;
use crate::malformed::Malformed;

/// Padding may be missing, as the mapping allows.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Up to this value, every integer has a double of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The number in a text in JSON's own notation, with nothing around it.
#[must_use]
pub fn number(text: &str) -> Option<Numeral> {
    // serde_json would skip blanks.
    let (first, last) = (text.bytes().next()?, text.bytes().next_back()?);
    if !(first == b'-' || first.is_ascii_digit()) || !last.is_ascii_digit() {
        return None;
    }
    let number: serde_json::Number = serde_json::from_str(text).ok()?;
    number.as_i128().map(Numeral::Int).or_else(|| number.as_f64().map(Numeral::Float))
}

/// The number in a text where a float is expected, which may be NaN or infinite.
#[must_use]
pub fn float(text: &str) -> Option<f64> {
    Some(match text {
        "NaN" => f64::NAN,
        "Infinity" => f64::INFINITY,
        "-Infinity" => f64::NEG_INFINITY,
        _ => match number(text)? {
            Numeral::Int(value) => value as f64,
            Numeral::Float(value) => value,
        },
    })
}

/// The integer that equals a float, if it is certain which integer was written.
#[must_use]
pub fn whole(value: f64) -> Option<i64> {
    (value.abs() <= EXACT && value.fract() == 0.0).then_some(value as i64)
}

/// The bytes of a base64 text, in either alphabet, with or without padding.
///
/// # Errors
///
/// It is not base64.
pub fn base64(text: &str) -> Result<Vec<u8>, Malformed> {
    let engine = if text.bytes().any(|byte| matches!(byte, b'-' | b'_')) { URL_SAFE } else { STANDARD };
    engine.decode(text).map_err(|_| Malformed("the text is not base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_number_only_as_json_writes_one() {
        assert_eq!(number("0"), Some(Numeral::Int(0)));
        assert_eq!(number("-9223372036854775808"), Some(Numeral::Int(i64::MIN.into())));
        assert_eq!(number("18446744073709551615"), Some(Numeral::Int(u64::MAX.into())));
        assert_eq!(number("18446744073709551616"), Some(Numeral::Float(18_446_744_073_709_551_616.0)));
        assert_eq!(number("1.5e3"), Some(Numeral::Float(1500.0)));
        for text in ["", " 1", "1 ", "+1", "01", "1.", ".5", "0x1", "1_0", "--1", "NaN", "1e999", "\u{661}", "1\n"] {
            assert_eq!(number(text), None, "{text:?}");
        }
        assert!(float("NaN").is_some_and(f64::is_nan));
        assert_eq!(float("-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(float("-0.0").map(f64::is_sign_negative), Some(true));
        assert_eq!((float("inf"), float("nan"), float("infinity")), (None, None, None));
    }

    #[test]
    fn a_float_is_an_integer_as_long_as_it_is_no_other_one() {
        assert_eq!((whole(3.0), whole(-0.0), whole(EXACT)), (Some(3), Some(0), Some(1 << 53)));
        assert_eq!((whole(0.5), whole(EXACT + 2.0), whole(f64::NAN), whole(f64::INFINITY)), (None, None, None, None));
    }

    #[test]
    fn both_alphabets_of_base64_are_read() {
        assert_eq!(base64("-_8="), Ok(vec![0xfb, 0xff]));
        assert_eq!(base64("+/8"), Ok(vec![0xfb, 0xff]));
        assert_eq!(base64(""), Ok(vec![]));
        for text in ["+_8=", "a", "a===", "YR==", "YQ==\n", "Y Q=="] {
            assert!(base64(text).is_err(), "{text:?}");
        }
    }
}

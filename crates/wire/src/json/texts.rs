//! Reads numbers and bytes from texts.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::malformed::Malformed;

/// Padding may be missing, as the mapping allows.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Up to this value, every integer has a double of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Any number of so many digits is an `i128`.
const MOST_DIGITS: i64 = 38;

/// Whether a text is a number in JSON's own notation, with nothing around it.
#[must_use]
pub fn is_number(text: &str) -> bool {
    numeral(text.as_bytes()) == Some(text.len())
}

/// The length of the number that some JSON begins with.
pub(super) fn numeral(json: &[u8]) -> Option<usize> {
    let digits = |begin: usize| begin + json[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = usize::from(json.first() == Some(&b'-'));
    let mut end = digits(whole);
    // A zero in front would mean octal numbers elsewhere.
    if end == whole || (json[whole] == b'0' && end > whole + 1) {
        return None;
    }
    if json.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = digits(fraction);
        if end == fraction {
            return None;
        }
    }
    if matches!(json.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(json.get(end + 1), Some(b'+' | b'-')));
        end = digits(exponent);
        if end == exponent {
            return None;
        }
    }
    Some(end)
}

/// The integer that a number in JSON's notation equals, or `None` if it has a fraction. In place of one that has more
/// than 38 digits comes the greatest or least `i128`: no type of Protobuf holds either.
///
/// Nothing is rounded, and it takes as long as the digits are many, whatever the exponent is.
#[must_use]
pub fn integer(number: &str) -> Option<i128> {
    if let Ok(short) = number.parse::<i64>() {
        return Some(short.into());
    }
    let (sign, number) = number.strip_prefix('-').map_or((1, number), |number| (-1, number));
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    let is_zero = |digit: &u8| *digit == b'0';
    let (before, behind) = (digits().take_while(is_zero).count(), digits().rev().take_while(is_zero).count());
    // None is left of a zero.
    let Some(count @ 1..) = (whole.len() + fraction.len()).checked_sub(before + behind) else { return Some(0) };
    // An exponent that is no `i64` is as good as endless: no text has so many digits.
    let endless = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
    // The power of ten that the last digit other than zero stands for.
    let power = exponent.parse().unwrap_or(endless).saturating_add(behind as i64 - fraction.len() as i64);
    if power < 0 {
        return None;
    }
    if power.saturating_add(count as i64) > MOST_DIGITS {
        return Some(if sign < 0 { i128::MIN } else { i128::MAX });
    }
    let value = digits().skip(before).take(count).fold(0, |value, digit| value * 10 + i128::from(digit - b'0'));
    Some(sign * value * 10_i128.pow(power as u32))
}

/// The double that is nearest to a number in JSON's notation, or `None` if it is beyond all of them.
#[must_use]
pub fn finite(number: &str) -> Option<f64> {
    number.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The number in a text where a float is expected, which may be NaN or infinite.
#[must_use]
pub fn float(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ if is_number(text) => finite(text),
        _ => None,
    }
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
        for text in ["0", "-0", "10", "-9223372036854775808", "1.5e3", "0.0", "0e0", "1E+05", "1e-999", "1e999"] {
            assert!(is_number(text), "{text:?}");
        }
        let others = ["", " 1", "1 ", "+1", "01", "-01", "1.", ".5", "0x1", "1_0", "--1", "-", "NaN", "\u{661}", "1\n"];
        for text in others.into_iter().chain(["1e", "1e+", "1e5.0", "1.e5", "1.5.5", "e5"]) {
            assert!(!is_number(text), "{text:?}");
        }
        assert!(float("NaN").is_some_and(f64::is_nan));
        assert_eq!(float("-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(float("-0.0").map(f64::is_sign_negative), Some(true));
        assert_eq!((float("1.5e3"), float("1e999"), float("1e-999")), (Some(1500.0), None, Some(0.0)));
        assert_eq!((float("inf"), float("nan"), float("infinity"), float("1.")), (None, None, None, None));
    }

    #[test]
    fn an_integer_is_exactly_what_was_written() {
        let cases = [
            ("0", 0),
            ("-0", 0),
            ("-0.000e-5", 0),
            ("0e99999999999999999999", 0),
            ("1.0", 1),
            ("-1e2", -100),
            ("0.5e1", 5),
            ("0.00120e4", 12),
            ("1200e-2", 12),
            ("1E+00000000000000000000000000000000000000000003", 1000),
            ("9007199254740993.0", 9_007_199_254_740_993),
            ("900719925474099.3e1", 9_007_199_254_740_993),
            ("-9223372036854775808", i64::MIN.into()),
            ("18446744073709551615", u64::MAX.into()),
            ("18446744073709551616.00", 1 << 64),
            ("99999999999999999999999999999999999999", 99_999_999_999_999_999_999_999_999_999_999_999_999),
            ("1e37", 10_i128.pow(37)),
            ("1e38", i128::MAX),
            ("-1e38", i128::MIN),
            ("1e999999999", i128::MAX),
            ("-1e99999999999999999999999999", i128::MIN),
        ];
        for (text, value) in cases {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        let long = format!("{}.{}", "1".repeat(20), "0".repeat(1_000_000));
        assert_eq!(integer(&long), Some(11_111_111_111_111_111_111));
        let shifted = format!("0.{}1e1000001", "0".repeat(1_000_000));
        assert_eq!(integer(&shifted), Some(1));
        for text in ["0.5", "-1e-1", "1.00000000000000000001", "1e-400", "1e-99999999999999999999", "12e-2", "1.5e0"] {
            assert_eq!(integer(text), None, "{text}");
        }
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

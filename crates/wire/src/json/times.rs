//! `google.protobuf.Timestamp` and `google.protobuf.Duration` as texts.

use std::fmt::Write;

use super::Writer;
use crate::malformed::Malformed;
use crate::protobuf::calendar::{DAY, GIGA, date_of, days_in, days_of, is_duration, is_timestamp};

const BAD_TIMESTAMP: Malformed = Malformed("the text is no point in time such as 2030-01-31T12:00:00Z");
const BAD_DURATION: Malformed = Malformed("the text is no duration such as 1.5s");
const OUT_OF_RANGE: Malformed = Malformed("the point in time is not within the years 1 to 9999");

impl Writer {
    /// Appends a point in time, in UTC: seconds since 1970, within the years 1 to 9999, and nanoseconds.
    pub fn timestamp(&mut self, seconds: i64, nanos: i64) {
        let (year, month, day) = date_of(seconds.div_euclid(DAY));
        let of_day = seconds.rem_euclid(DAY);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let mut text = format!("\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        fraction(&mut text, nanos);
        text.push_str("Z\"");
        self.raw(&text);
    }

    /// Appends a duration: seconds and nanoseconds with the same sign.
    pub fn duration(&mut self, seconds: i64, nanos: i64) {
        let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
        let mut text = format!("\"{sign}{}", seconds.abs());
        fraction(&mut text, nanos.abs());
        text.push_str("s\"");
        self.raw(&text);
    }
}

/// Writes as many digits as needed, in steps of three.
fn fraction(text: &mut String, nanos: i64) {
    let done = match nanos {
        0 => Ok(()),
        _ if nanos % 1_000_000 == 0 => write!(text, ".{:03}", nanos / 1_000_000),
        _ if nanos % 1000 == 0 => write!(text, ".{:06}", nanos / 1000),
        _ => write!(text, ".{nanos:09}"),
    };
    done.expect("into memory");
}

/// Reads a point in time as RFC 3339 writes it, with a zone. Returns seconds since 1970 and nanoseconds.
///
/// # Errors
///
/// The text is not of this form, or the point is not within the years 1 to 9999.
pub fn timestamp(text: &str) -> Result<(i64, i64), Malformed> {
    let (seconds, nanos) = civil(text.as_bytes()).ok_or(BAD_TIMESTAMP)?;
    if is_timestamp(seconds, nanos) { Ok((seconds, nanos)) } else { Err(OUT_OF_RANGE) }
}

fn civil(text: &[u8]) -> Option<(i64, i64)> {
    let (whole, rest) = text.split_at_checked(19)?;
    if (whole[4], whole[7], whole[10], whole[13], whole[16]) != (b'-', b'-', b'T', b':', b':') {
        return None;
    }
    let year = digits(&whole[..4])? as i32;
    let (month, day) = (digits(&whole[5..7])? as u8, digits(&whole[8..10])? as u8);
    let (hour, minute, second) = (digits(&whole[11..13])?, digits(&whole[14..16])?, digits(&whole[17..])?);
    if year < 1 || !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    // There is no second 60: Protobuf's time has no leap seconds.
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (nanos, rest) = nanos_of(rest)?;
    let seconds = days_of(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
    Some((seconds - offset(rest)?, nanos))
}

/// How many seconds a zone is ahead of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    if zone == b"Z" {
        return Some(0);
    }
    let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = *zone else { return None };
    let (hours, minutes) = (digits(&[h1, h2])?, digits(&[m1, m2])?);
    let ahead = hours * 3600 + minutes * 60;
    (hours < 24 && minutes < 60).then_some(if sign == b'+' { ahead } else { -ahead })
}

/// Reads a duration such as `-1.5s`. Returns seconds and nanoseconds, with the same sign.
///
/// # Errors
///
/// The text is not of this form, or the duration is longer than 10,000 years.
pub fn duration(text: &str) -> Result<(i64, i64), Malformed> {
    let (seconds, nanos) = length(text.as_bytes()).ok_or(BAD_DURATION)?;
    let too_long = Malformed("the duration is longer than 10,000 years");
    if is_duration(seconds, nanos) { Ok((seconds, nanos)) } else { Err(too_long) }
}

fn length(text: &[u8]) -> Option<(i64, i64)> {
    let (&last, text) = text.split_last()?;
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let seconds = digits(&text[..end])?;
    let (nanos, rest) = nanos_of(&text[end..])?;
    let sign = if negative { -1 } else { 1 };
    (last == b's' && rest.is_empty()).then_some((sign * seconds, sign * nanos))
}

/// Reads an optional fraction of 1 to 9 digits. Returns its nanoseconds, and the text behind it.
fn nanos_of(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else { return Some((0, text)) };
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (fraction, rest) = text.split_at(end);
    let scale = 10_i64.pow(9_u32.checked_sub(end as u32)?);
    Some((digits(fraction)? * scale, rest)).filter(|(nanos, _)| *nanos < GIGA)
}

/// Reads a number of 1 to 18 digits.
fn digits(text: &[u8]) -> Option<i64> {
    let few = (1..=18).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    few.then(|| text.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer)) -> String {
        let mut out = Writer::default();
        write(&mut out);
        String::from_utf8_lossy(out.as_bytes()).trim_matches('"').to_owned()
    }

    #[test]
    fn points_in_time_are_read_as_they_were_written() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (-1, 999_000_000, "1969-12-31T23:59:59.999Z"),
            (951_868_799, 1_000, "2000-02-29T23:59:59.000001Z"),
            (253_402_300_799, 999_999_999, "9999-12-31T23:59:59.999999999Z"),
            (-62_135_596_800, 0, "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(written(|out| out.timestamp(seconds, nanos)), text);
            assert_eq!(timestamp(text), Ok((seconds, nanos)));
        }
        assert_eq!(timestamp("1970-01-01T01:30:00.5+01:30"), Ok((0, 500_000_000)));
        assert_eq!(timestamp("1969-12-31T23:00:00-01:00"), Ok((0, 0)));
    }

    #[test]
    fn other_texts_are_no_points_in_time() {
        for text in [
            "",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "1970-01-01t00:00:00Z",
            "1970-01-01T00:00:00z",
            "1970-1-01T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "2016-12-31T23:59:60Z",
            "1970-02-29T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.0000000001Z",
            "1970-01-01T00:00:00+0100",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00Z ",
            "+970-01-01T00:00:00Z",
            "1970-01-01T00:00:00\u{e9}",
            "197\u{661}-01-01T00:00:00Z",
        ] {
            assert_eq!(timestamp(text), Err(BAD_TIMESTAMP), "{text:?}");
        }
        assert_eq!(timestamp("0001-01-01T00:00:00+00:01"), Err(OUT_OF_RANGE));
        assert_eq!(timestamp("9999-12-31T23:59:59-00:01"), Err(OUT_OF_RANGE));
    }

    #[test]
    fn durations_are_read_as_they_were_written() {
        for (seconds, nanos, text) in [
            (0, 0, "0s"),
            (0, -500_000_000, "-0.500s"),
            (3, 1, "3.000000001s"),
            (-315_576_000_000, -1000, "-315576000000.000001s"),
        ] {
            assert_eq!(written(|out| out.duration(seconds, nanos)), text);
            assert_eq!(duration(text), Ok((seconds, nanos)));
        }
        for text in
            ["", "s", "1", "1.s", ".5s", "+1s", "--1s", "1e3s", "1s ", " 1s", "1.0000000000s", "1.5", "1m", "-s"]
        {
            assert_eq!(duration(text), Err(BAD_DURATION), "{text:?}");
        }
        assert!(duration("315576000001s").is_err());
        assert!(duration("9999999999999999999999s").is_err());
    }
}

//! The calendar of Protobuf's points in time: the Gregorian calendar, for the years 1 to 9999.

/// Seconds of a day.
pub const DAY: i64 = 86_400;
/// Nanoseconds of a second.
pub const GIGA: i64 = 1_000_000_000;
/// Days from 1 January of year 1 to 1 January 1970.
const EPOCH: i64 = 719_162;
/// The first second of 1 January of year 1, counted from 1970.
const FIRST: i64 = -EPOCH * DAY;
/// The last second of the year 9999, counted from 1970.
const LAST: i64 = 253_402_300_799;
/// Seconds of ten thousand years: the specification's limit for a duration.
const LONGEST: i64 = 315_576_000_000;

/// Days before each month in a common year.
const BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// Whether seconds since 1970 and nanoseconds are a valid `google.protobuf.Timestamp`.
#[must_use]
pub fn is_timestamp(seconds: i64, nanos: i64) -> bool {
    (FIRST..=LAST).contains(&seconds) && (0..GIGA).contains(&nanos)
}

/// Whether seconds and nanoseconds are a valid `google.protobuf.Duration`: both must have the same sign.
#[must_use]
pub fn is_duration(seconds: i64, nanos: i64) -> bool {
    let signs_agree = seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0);
    (-LONGEST..=LONGEST).contains(&seconds) && nanos.abs() < GIGA && signs_agree
}

/// Days from 1 January 1970 to a date. The month is 1 to 12.
#[must_use]
pub fn days_of(year: i32, month: u8, day: u8) -> i64 {
    let leap = month > 2 && is_leap(year.into());
    let in_year = BEFORE_MONTH[usize::from(month) - 1] + i64::from(leap) + i64::from(day) - 1;
    days_before(year.into()) + in_year - EPOCH
}

/// Year, month and day of the day this many days after 1 January 1970. The year must be 1 to 9999.
#[must_use]
pub fn date_of(days: i64) -> (i32, u8, u8) {
    let days = days + EPOCH;
    // 400 years have 146,097 days, so this is the right year or a neighbouring one.
    let mut year = days * 400 / 146_097 + 1;
    while days_before(year) > days {
        year -= 1;
    }
    while days_before(year + 1) <= days {
        year += 1;
    }
    let rest = days - days_before(year);
    let begin = |month: usize| BEFORE_MONTH[month] + i64::from(month > 1 && is_leap(year));
    let month = (0..12).rev().find(|&month| rest >= begin(month)).unwrap_or(0);
    (year as i32, month as u8 + 1, (rest - begin(month)) as u8 + 1)
}

/// The number of days in a month. The month is 1 to 12.
#[must_use]
pub fn days_in(year: i32, month: u8) -> u8 {
    let next = if month == 12 { days_of(year + 1, 1, 1) } else { days_of(year, month + 1, 1) };
    (next - days_of(year, month, 1)) as u8
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1 January of year 1 to 1 January of another year.
fn days_before(year: i64) -> i64 {
    let whole = year - 1;
    whole * 365 + whole / 4 - whole / 100 + whole / 400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_has_its_date() {
        let (mut year, mut month, mut day) = (1, 1, 1);
        for days in FIRST / DAY..=LAST / DAY {
            assert_eq!((date_of(days), days_of(year, month, day)), ((year, month, day), days));
            let thirty = matches!(month, 4 | 6 | 9 | 11);
            let last = if month == 2 { 28 + u8::from(is_leap(year.into())) } else { 31 - u8::from(thirty) };
            assert_eq!(days_in(year, month), last);
            (year, month, day) = match (month, day == last) {
                (_, false) => (year, month, day + 1),
                (12, true) => (year + 1, 1, 1),
                (_, true) => (year, month + 1, 1),
            };
        }
        assert_eq!((year, month, day), (10_000, 1, 1));
    }
}

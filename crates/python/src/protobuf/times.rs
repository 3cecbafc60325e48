//! `google.protobuf.Timestamp` and `google.protobuf.Duration`: points in time, and lengths of it.

use nearcall_core::protobuf::{Fields, Number, Scalar, Writer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyTimeAccess, PyTzInfo, PyTzInfoAccess};

use super::trouble::{Result, Trouble, raised};
use crate::callback::Callback;

const DAY: i64 = 86_400;
const GIGA: i64 = 1_000_000_000;
/// Days from 1 January of the year 1 to that of 1970.
const EPOCH: i64 = 719_162;
/// Seconds of 1 January of the year 1, and of the end of the year 9999.
const FIRST: i64 = -EPOCH * DAY;
const LAST: i64 = 253_402_300_799;
/// Seconds of ten thousand years: the specification's limit for a duration.
const LONGEST: i64 = 315_576_000_000;

/// Appends a datetime's `Timestamp`.
pub(super) fn put_timestamp(value: &Bound<'_, PyAny>, out: &mut Writer) -> Result<()> {
    let py = value.py();
    let Ok(moment) = value.cast::<PyDateTime>() else {
        return Err(Trouble::misfit(format!("expected datetime, got {}", super::type_name(value))));
    };
    let days = days_before(moment.get_year()) + days_in_year(moment);
    let of_day =
        i64::from(moment.get_hour()) * 3600 + i64::from(moment.get_minute()) * 60 + i64::from(moment.get_second());
    let offset = match moment.get_tzinfo() {
        None => None,
        Some(zone) if PyTzInfo::utc(py).is_ok_and(|utc| zone.is(&*utc)) => Some((0, 0)),
        Some(_) => {
            let offset = moment.as_any().run_method(intern!(py, "utcoffset"), []).map_err(raised)?;
            let offset = offset.cast::<PyDelta>().ok();
            offset.map(|offset| {
                (i64::from(offset.get_days()) * DAY + i64::from(offset.get_seconds()), offset.get_microseconds())
            })
        }
    };
    let Some((offset, micros)) = offset else {
        return Err(Trouble::misfit("a datetime without a time zone is no point in time: give it one"));
    };
    if !moment.is_exact_instance_of::<PyDateTime>()
        && moment.as_any().attribute(intern!(py, "nanosecond")).is_ok_and(|nanos| nanos.is_truthy().unwrap_or(false))
    {
        return Err(Trouble::misfit("a datetime with nanoseconds would lose them: round it to microseconds"));
    }
    let mut seconds = (days - EPOCH) * DAY + of_day - offset;
    let mut nanos = (i64::from(moment.get_microsecond()) - i64::from(micros)) * 1000;
    if nanos < 0 {
        (seconds, nanos) = (seconds - 1, nanos + GIGA);
    }
    if !(FIRST..=LAST).contains(&seconds) {
        return Err(Trouble::misfit("the datetime is not within the years 1 to 9999 in UTC"));
    }
    put(seconds, nanos, out);
    Ok(())
}

/// The datetime of an encoded `Timestamp`, in UTC. What is finer than a microsecond is cut off.
pub(super) fn timestamp<'py>(py: Python<'py>, parts: &[&[u8]]) -> Result<Bound<'py, PyAny>> {
    let (seconds, nanos) = numbers(parts)?;
    if !(FIRST..=LAST).contains(&seconds) || !(0..GIGA).contains(&nanos) {
        return Err(Trouble::misfit("a Timestamp that is not within the years 1 to 9999"));
    }
    let (days, of_day) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let made = PyTzInfo::utc(py).and_then(|utc| {
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let micros = (nanos / 1000) as u32;
        PyDateTime::new(py, year, month, day, hour as u8, minute as u8, second as u8, micros, Some(&utc))
    });
    made.map(Bound::into_any).map_err(raised)
}

/// Appends a timedelta's `Duration`.
pub(super) fn put_duration(value: &Bound<'_, PyAny>, out: &mut Writer) -> Result<()> {
    let Ok(delta) = value.cast::<PyDelta>() else {
        return Err(Trouble::misfit(format!("expected timedelta, got {}", super::type_name(value))));
    };
    let mut seconds = i64::from(delta.get_days()) * DAY + i64::from(delta.get_seconds());
    let mut nanos = i64::from(delta.get_microseconds()) * 1000;
    if seconds < 0 && nanos > 0 {
        (seconds, nanos) = (seconds + 1, nanos - GIGA);
    }
    if !(-LONGEST..=LONGEST).contains(&seconds) {
        return Err(Trouble::misfit("the timedelta is longer than the 10,000 years of a Protobuf Duration"));
    }
    put(seconds, nanos, out);
    Ok(())
}

/// The timedelta of an encoded `Duration`. What is finer than a microsecond is cut off.
pub(super) fn duration<'py>(py: Python<'py>, parts: &[&[u8]]) -> Result<Bound<'py, PyAny>> {
    let (seconds, nanos) = numbers(parts)?;
    let signs_agree = seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0);
    if !(-LONGEST..=LONGEST).contains(&seconds) || nanos.abs() >= GIGA || !signs_agree {
        return Err(Trouble::misfit("a malformed Duration"));
    }
    // Python brings days, seconds and microseconds in order.
    let (days, rest) = (seconds / DAY, seconds % DAY);
    let made = PyDelta::new(py, days as i32, rest as i32, (nanos / 1000) as i32, true);
    made.map(Bound::into_any).map_err(raised)
}

fn put(seconds: i64, nanos: i64, out: &mut Writer) {
    if seconds != 0 {
        out.varint_tag(1);
        out.varint(seconds as u64);
    }
    if nanos != 0 {
        out.varint_tag(2);
        out.varint(nanos as u64);
    }
}

/// The two fields that both messages have.
fn numbers(parts: &[&[u8]]) -> Result<(i64, i64)> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Fields::of_parts(parts);
    while let Some((number, wire)) = fields.next()? {
        let (scalar, into) = match number {
            1 => (Scalar::Int64, &mut seconds),
            2 => (Scalar::Int32, &mut nanos),
            _ => continue,
        };
        if let Some(Number::Int(value)) = scalar.number(wire)? {
            *into = value as i64;
        }
    }
    Ok((seconds, nanos))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1 January of the year 1 to that of another year.
fn days_before(year: i32) -> i64 {
    let whole = i64::from(year) - 1;
    whole * 365 + whole / 4 - whole / 100 + whole / 400
}

const BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

fn days_in_year(moment: &Bound<'_, PyDateTime>) -> i64 {
    let month = moment.get_month();
    let leap = month > 2 && is_leap(moment.get_year().into());
    BEFORE_MONTH[usize::from(month) - 1] + i64::from(leap) + i64::from(moment.get_day()) - 1
}

/// Year, month and day, so many days after 1 January 1970. The year is one of 1 to 9999.
fn date(days: i64) -> (i32, u8, u8) {
    let days = days + EPOCH;
    // 400 years have 146,097 days, so that this is the year or the one beside it.
    let mut year = days * 400 / 146_097 + 1;
    while days_before(year as i32) > days {
        year -= 1;
    }
    while days_before(year as i32 + 1) <= days {
        year += 1;
    }
    let mut rest = days - days_before(year as i32);
    for month in (0..12).rev() {
        let begin = BEFORE_MONTH[month] + i64::from(month > 1 && is_leap(year));
        if rest >= begin {
            rest -= begin;
            return (year as i32, month as u8 + 1, rest as u8 + 1);
        }
    }
    unreachable!("January begins with day 0")
}

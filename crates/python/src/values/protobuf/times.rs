//! `google.protobuf.Timestamp` and `google.protobuf.Duration`: points in time, and lengths of it.

use nearcall_core::protobuf::calendar::{DAY, GIGA, date_of, days_of, is_duration, is_timestamp};
use nearcall_core::protobuf::{Fields, Number, Scalar};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyTimeAccess, PyTzInfo, PyTzInfoAccess};

use super::strings::type_name;
use super::trouble::{Result, Trouble, raised};
use crate::gil::callback::Callback;

/// Seconds and nanoseconds of a datetime's `Timestamp`.
pub(super) fn of_datetime(value: &Bound<'_, PyAny>) -> Result<(i64, i64)> {
    let py = value.py();
    let Ok(moment) = value.cast::<PyDateTime>() else {
        return Err(Trouble::misfit(format!("expected datetime, got {}", type_name(value))));
    };
    let days = days_of(moment.get_year(), moment.get_month(), moment.get_day());
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
    let mut seconds = days * DAY + of_day - offset;
    let mut nanos = (i64::from(moment.get_microsecond()) - i64::from(micros)) * 1000;
    if nanos < 0 {
        (seconds, nanos) = (seconds - 1, nanos + GIGA);
    }
    if !is_timestamp(seconds, nanos) {
        return Err(Trouble::misfit("the datetime is not within the years 1 to 9999 in UTC"));
    }
    Ok((seconds, nanos))
}

/// The datetime of a `Timestamp`'s seconds and nanoseconds, in UTC. What is finer than a microsecond is cut off.
pub(super) fn datetime(py: Python<'_>, (seconds, nanos): (i64, i64)) -> Result<Bound<'_, PyAny>> {
    if !is_timestamp(seconds, nanos) {
        return Err(Trouble::misfit("a Timestamp that is not within the years 1 to 9999"));
    }
    let (days, of_day) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date_of(days);
    let made = PyTzInfo::utc(py).and_then(|utc| {
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let micros = (nanos / 1000) as u32;
        PyDateTime::new(py, year, month, day, hour as u8, minute as u8, second as u8, micros, Some(&utc))
    });
    made.map(Bound::into_any).map_err(raised)
}

/// Seconds and nanoseconds of a timedelta's `Duration`.
pub(super) fn of_timedelta(value: &Bound<'_, PyAny>) -> Result<(i64, i64)> {
    let Ok(delta) = value.cast::<PyDelta>() else {
        return Err(Trouble::misfit(format!("expected timedelta, got {}", type_name(value))));
    };
    let mut seconds = i64::from(delta.get_days()) * DAY + i64::from(delta.get_seconds());
    let mut nanos = i64::from(delta.get_microseconds()) * 1000;
    if seconds < 0 && nanos > 0 {
        (seconds, nanos) = (seconds + 1, nanos - GIGA);
    }
    if !is_duration(seconds, nanos) {
        return Err(Trouble::misfit("the timedelta is longer than the 10,000 years of a Protobuf Duration"));
    }
    Ok((seconds, nanos))
}

/// The timedelta of a `Duration`'s seconds and nanoseconds. What is finer than a microsecond is cut off.
pub(super) fn timedelta(py: Python<'_>, (seconds, nanos): (i64, i64)) -> Result<Bound<'_, PyAny>> {
    if !is_duration(seconds, nanos) {
        return Err(Trouble::misfit("a malformed Duration"));
    }
    // Python normalizes days, seconds and microseconds.
    let (days, rest) = (seconds / DAY, seconds % DAY);
    let made = PyDelta::new(py, days as i32, rest as i32, (nanos / 1000) as i32, true);
    made.map(Bound::into_any).map_err(raised)
}

/// Seconds and nanoseconds of an encoded `Timestamp` or `Duration`.
pub(super) fn numbers(parts: &[&[u8]]) -> Result<(i64, i64)> {
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

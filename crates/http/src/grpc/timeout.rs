//! `grpc-timeout`: at most eight digits and a unit.

use std::time::Duration;

/// A `grpc-timeout` that is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("grpc-timeout is not one to eight digits and one of H, M, S, m, u, n")]
pub struct BadTimeout;

const MOST_DIGITS: usize = 8;

pub(crate) fn read(value: &[u8]) -> Result<Duration, BadTimeout> {
    let (unit, digits) = value.split_last().ok_or(BadTimeout)?;
    if digits.is_empty() || digits.len() > MOST_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BadTimeout);
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Ok(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return Err(BadTimeout),
    })
}

/// Uses the finest unit for which eight digits suffice, and rounds up: the deadline must not pass at the server before
/// it passes here.
pub(crate) fn write(timeout: Duration) -> String {
    const UNITS: [(u128, char); 6] = [
        (1, 'n'),
        (1_000, 'u'),
        (1_000_000, 'm'),
        (1_000_000_000, 'S'),
        (60_000_000_000, 'M'),
        (3_600_000_000_000, 'H'),
    ];
    let nanoseconds = timeout.as_nanos();
    let most = 10u128.pow(MOST_DIGITS as u32) - 1;
    for (unit, letter) in UNITS {
        let number = nanoseconds.div_ceil(unit);
        if number <= most {
            return format!("{number}{letter}");
        }
    }
    format!("{most}H")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_no_less() {
        for nanoseconds in [0, 1, 99_999_999, 100_000_000, 123_456_789_012, u64::MAX] {
            let timeout = Duration::from_nanos(nanoseconds);
            let read = read(write(timeout).as_bytes()).unwrap();
            assert!(read >= timeout && read <= timeout + timeout / 10_000, "{timeout:?} {read:?}");
        }
        assert_eq!(write(Duration::MAX), "99999999H");
    }

    #[test]
    fn what_is_no_timeout_is_refused() {
        for bad in ["", "S", "1", "1x", "-1S", "+1S", " 1S", "1.5S", "123456789n", "1 S"] {
            assert_eq!(read(bad.as_bytes()), Err(BadTimeout), "{bad:?}");
        }
        assert_eq!(read(b"99999999H"), Ok(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(read(b"20m"), Ok(Duration::from_millis(20)));
    }
}

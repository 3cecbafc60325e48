//! How much memory the system has left.

use std::fs::File;
use std::io::Read;

/// Bytes that the whole system can still provide without taking them from other programs, as `MemAvailable` in
/// `/proc/meminfo` says; `None` if it does not say.
#[must_use]
pub fn available() -> Option<u64> {
    // The line is among the first three.
    let mut start = [0; 512];
    let read = File::open("/proc/meminfo").and_then(|mut file| file.read(&mut start)).ok()?;
    available_in(str::from_utf8(&start[..read]).ok()?)
}

fn available_in(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found() {
        let text = "MemTotal:       24683704 kB\nMemFree:        22814488 kB\nMemAvailable:   23378036 kB\nBuff";
        assert_eq!(available_in(text), Some(23_378_036 * 1024));
        assert_eq!(available_in("MemTotal: 5 kB\n"), None);
        assert_eq!(available_in("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn this_system_says_it() {
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}

//! The environment: variables that the policy does not keep are removed, and their values are overwritten.

use std::ffi::OsStr;
use std::fs;

use crate::{Name, Report, State};

/// Removes all variables except `names`. The process must have one thread.
pub(super) fn keep(names: &[String], report: &mut Report) {
    let is_kept = |name: &OsStr| names.iter().any(|kept| name == OsStr::new(kept));
    overwrite(names);
    let others: Vec<_> = std::env::vars_os().map(|(name, _)| name).filter(|name| !is_kept(name)).collect();
    for name in &others {
        // SAFETY: no other thread reads the environment: there is none.
        unsafe { std::env::remove_var(name) };
    }
    report.add(Name::Environment, State::Provided, format!("{} variables removed", others.len()));
}

/// Overwrites with zeros the values that the removed variables had at the start of the program: `/proc/self/environ`
/// shows these for ever.
fn overwrite(names: &[String]) {
    let Some((start, len)) = place() else { return };
    // SAFETY: the kernel says that it put the first variables there, on the stack, for the process to read and write.
    // No other reference to them is in use: there is no other thread.
    let texts = unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(start), len) };
    for text in texts.split_mut(|&byte| byte == 0) {
        let name = text.split(|&byte| byte == b'=').next().unwrap_or_default();
        // The name stays, so that the C library finds the variable when it is removed: only the value is secret.
        let said = name.len() + 1;
        let is_kept = names.iter().any(|kept| kept.as_bytes() == name);
        if !is_kept && said < text.len() {
            text[said..].fill(0);
        }
    }
}

/// Where the kernel put the variables when the program was started: address and length.
fn place() -> Option<(usize, usize)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 50 and 51. Field 2 is the program's name in brackets, which may hold anything.
    let mut numbers = stat.rsplit_once(')')?.1.split_whitespace().skip(47).map(str::parse::<usize>);
    let (start, end) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    // The fields are 0 if this process may not see addresses.
    (start != 0 && start < end).then(|| (start, end - start))
}

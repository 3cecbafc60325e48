//! Descriptors: those that the policy does not keep are closed, no matter what opened them.

use std::fs;

use crate::{Error, Name, Report, Result, State};

/// Closes all descriptors except `numbers`. The process must have one thread.
///
/// An object that holds the number of a closed descriptor keeps that number; so this comes first, before anything is
/// opened.
pub(super) fn keep(numbers: &[i32], report: &mut Report) -> Result<()> {
    let entries = fs::read_dir("/proc/self/fd").map_err(Error::at("reading /proc/self/fd"))?;
    // The list is complete before the first descriptor is closed. The descriptor that the list was read with is in it,
    // and is closed by then.
    let open: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let mut closed = 0_u32;
    for number in open.into_iter().filter(|number| !numbers.contains(number)) {
        // SAFETY: no memory is touched. Closing descriptors that other code owns is the purpose of this function.
        if unsafe { libc::close(number) } == 0 {
            closed += 1;
        }
    }
    report.add(Name::Descriptors, State::Provided, format!("{closed} closed; kept, if open: {numbers:?}"));
    Ok(())
}

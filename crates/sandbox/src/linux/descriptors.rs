//! Descriptors: what is not kept is closed, whoever opened it.

use std::fs;

use crate::{Error, Name, Report, Result, State};

/// Closes all other descriptors. The process must have one thread.
///
/// Whoever has such a number in an object finds it closed; so this comes first, before anything is opened.
pub(super) fn keep(numbers: &[i32], report: &mut Report) -> Result<()> {
    let entries = fs::read_dir("/proc/self/fd").map_err(Error::at("reading /proc/self/fd"))?;
    // The list is whole before the first is closed. The one it was read with is in it, and closed by then.
    let open: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let mut closed = 0_u32;
    for number in open.into_iter().filter(|number| !numbers.contains(number)) {
        // SAFETY: no memory is touched; that the owner's number is closed is what this is for.
        if unsafe { libc::close(number) } == 0 {
            closed += 1;
        }
    }
    report.add(Name::Descriptors, State::Provided, format!("{closed} closed; kept, if open: {numbers:?}"));
    Ok(())
}

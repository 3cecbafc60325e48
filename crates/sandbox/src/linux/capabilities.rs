//! The superuser's rights. Without them its user number opens what belongs to it, and no more.

use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities};

use crate::{Name, Report, State};

/// Gives up all of them, and with them the way back by starting a program.
pub(super) fn drop_all(report: &mut Report) {
    // The kernel knows fewer than 64. Removing one that is unknown, or without the right to, is an error that harms nothing:
    // without rights of its own a process with no_new_privs gets none from the bounding set.
    for number in 0..64 {
        // SAFETY: no memory is touched.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
    // Kernels before 4.3 have none.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    match set_capabilities(None, none) {
        Ok(()) => report.add(Name::Capabilities, State::Provided, "all given up"),
        Err(why) => report.add(Name::Capabilities, State::Refused, format!("they cannot be given up: {why}")),
    }
}

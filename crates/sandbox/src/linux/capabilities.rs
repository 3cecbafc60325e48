//! The superuser's rights. Without them, the superuser can open only files that belong to the superuser.

use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities};

use crate::{Name, Report, State};

/// Gives up all capabilities, so that starting a program does not bring them back.
pub(super) fn drop_all(report: &mut Report) {
    // The kernel knows fewer than 64 capabilities. Removing one that the kernel does not know, or that this process may
    // not remove, is an error that harms nothing: without rights of its own, a process with no_new_privs gets none from
    // the bounding set.
    for number in 0..64 {
        // SAFETY: no memory is touched.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    }
    // Kernels before 4.3 have no ambient set.
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

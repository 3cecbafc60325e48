//! Linux: each layer in a file of its own, and the order in which the layers are applied.

mod capabilities;
mod cgroup;
mod descriptors;
mod early;
mod environment;
mod files;
mod limits;
mod namespaces;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod system_calls;

use std::fs;

pub use early::Early;

use crate::{Error, Name, Policy, Report, Result, State};

/// Confines this process and everything that it will start, for ever.
///
/// Call it before foreign code is loaded, while the process has one thread: the number of threads is checked. The order
/// of the layers matters. Layers that need rights come before the rights are given up, layers that open files before
/// files are out of reach. The filter of system calls is last, because it refuses most of what is done here.
///
/// `early` is waited for, and counts if it was begun with the limits of this policy.
///
/// # Errors
/// Any of [`Error`]. The process may be confined in part then, and should end.
pub fn apply(policy: &Policy, early: Option<Early>) -> Result<Report> {
    policy.check()?;
    let entered = early.and_then(|early| early.finish(&policy.limits));
    check_threads()?;
    let mut report = Report::default();
    environment::keep(&policy.environment, &mut report);
    descriptors::keep(&policy.descriptors, &mut report)?;
    match entered {
        Some(layers) => report.layers.extend(layers),
        None => cgroup::enter(&policy.limits, &mut report),
    }
    let own_users = namespaces::enter(policy, &mut report);
    capabilities::drop_all(&mut report);
    rustix::thread::set_no_new_privs(true).map_err(Error::at("no_new_privs"))?;
    report.add(Name::NoNewPrivs, State::Provided, "programs with special rights lose them");
    // Counted while other processes can still be seen.
    let others = if own_users { None } else { Some(limits::tasks_of_user()) };
    files::restrict(policy, &mut report)?;
    limits::set(&policy.limits, others, &mut report)?;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    system_calls::restrict(policy, &mut report)?;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    report.add(Name::SystemCalls, State::NotAvailable, "the list is written for x86-64 and aarch64 only");
    let missing = report.missing_of(&policy.required);
    if missing.is_empty() { Ok(report) } else { Err(Error::Missing(missing)) }
}

/// Makes sure that there is one thread. A layer binds the thread that asks for it: other threads would stay free.
fn check_threads() -> Result<()> {
    let threads = fs::read_dir("/proc/self/task").map_err(Error::at("counting threads in /proc/self/task"))?.count();
    if threads == 1 { Ok(()) } else { Err(Error::Threads(threads)) }
}

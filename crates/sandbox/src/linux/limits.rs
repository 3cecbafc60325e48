//! The process's own limits (`setrlimit`). Soft and hard ones are the same: nothing raises them again.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

use crate::{Error, Limits, Name, Report, Result, State};

/// Addresses beyond the memory that may be used: mapped files, memory shared with the host, and what is only reserved, such
/// as the 64 MiB in which the C library places what each thread allocates.
const ADDRESSES_BEYOND: u64 = 8 << 30;

/// Sets them. `own_users`: the process is in a user namespace of its own, and so is the count of its tasks.
pub(super) fn set(limits: &Limits, own_users: bool, report: &mut Report) -> Result<()> {
    let mut said = Vec::new();
    // A dump of memory would be a file somewhere else.
    lower(Resource::Core, Some(0))?;
    lower(Resource::Msgqueue, Some(0))?;
    if limits.memory.is_some() {
        lower(Resource::Data, limits.memory)?;
        lower(Resource::As, limits.memory.map(|bytes| bytes.saturating_add(ADDRESSES_BEYOND)))?;
        said.push("private memory".to_owned());
    }
    for (resource, most, name) in [
        (Resource::Cpu, limits.cpu_seconds, "processor time"),
        (Resource::Nofile, limits.open_files, "open descriptors"),
        (Resource::Fsize, limits.file_size, "length of a file"),
    ] {
        if most.is_some() {
            lower(resource, most)?;
            said.push(name.to_owned());
        }
    }
    if let Some(tasks) = limits.tasks {
        if getuid().is_root() {
            said.push("not the tasks, from whose limit the superuser is exempt".to_owned());
        } else if own_users {
            lower(Resource::Nproc, Some(tasks))?;
            said.push("tasks".to_owned());
        } else {
            // The kernel counts all tasks of the user: those of today are granted, so that the limit says what may be added.
            lower(Resource::Nproc, Some(tasks.saturating_add(tasks_of_user())))?;
            said.push("tasks, counted with all others of this user".to_owned());
        }
    }
    let said = if said.is_empty() { "no core dumps".to_owned() } else { said.join(", ") };
    report.add(Name::Limits, State::Provided, format!("limited: {said}"));
    Ok(())
}

/// Lowers a limit; one that is lower already stays.
fn lower(resource: Resource, most: Option<u64>) -> Result<()> {
    let now = getrlimit(resource);
    let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    let maximum = least(now.maximum, most);
    let wanted = Rlimit { current: least(now.current, maximum), maximum };
    setrlimit(resource, wanted).map_err(Error::at("setrlimit"))
}

/// Threads of all processes of this user.
fn tasks_of_user() -> u64 {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let own = getuid().as_raw().to_string();
    let threads = |status: &str| -> Option<u64> {
        let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
        let user = field("Uid:")?.split_whitespace().next()?;
        if user == own { field("Threads:")?.trim().parse().ok() } else { None }
    };
    let statuses = processes.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("status")).ok());
    statuses.filter_map(|status| threads(&status)).sum()
}

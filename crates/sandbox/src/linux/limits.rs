//! The process's own limits (`setrlimit`), soft and hard ones: nothing raises them again.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

use crate::{Error, Limits, Name, Report, Result, State};

/// Addresses that are allowed beyond the limit on memory: for mapped files, for memory shared with the host, and for
/// what is only reserved, such as the 64 MiB in which the C library places what each thread allocates.
const ADDRESSES_BEYOND: u64 = 8 << 30;

/// Sets the limits. `others`: how many tasks the kernel counts together with those of this process; `None` if it counts
/// this process's tasks alone, which it does in a user namespace of the process's own.
pub(super) fn set(limits: &Limits, others: Option<u64>, report: &mut Report) -> Result<()> {
    let mut said = Vec::new();
    // A core dump would write memory to a file elsewhere. With a limit of 0 bytes it would still go to the system's
    // program for dumps.
    lower(Resource::Core, Some(1))?;
    lower(Resource::Msgqueue, Some(0))?;
    if limits.memory.is_some() {
        lower(Resource::Data, limits.memory)?;
        lower(Resource::As, limits.memory.map(|bytes| bytes.saturating_add(ADDRESSES_BEYOND)))?;
        said.push("private memory".to_owned());
    }
    if let Some(seconds) = limits.cpu_seconds {
        // If both limits were the same second, the kernel would kill the process at once, and nobody would see why.
        set_both(Resource::Cpu, Some(seconds), Some(seconds.saturating_add(1)))?;
        said.push("processor time".to_owned());
    }
    for (resource, most, name) in [
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
        } else {
            // The tasks that exist now are added, so that the limit says how many more there may be.
            lower(Resource::Nproc, Some(tasks.saturating_add(others.unwrap_or(0))))?;
            let how = if others.is_some() { "tasks, counted with all others of this user" } else { "tasks" };
            said.push(how.to_owned());
        }
    }
    let said = if said.is_empty() { "no core dumps".to_owned() } else { said.join(", ") };
    report.add(Name::Limits, State::Provided, format!("limited: {said}"));
    Ok(())
}

fn lower(resource: Resource, most: Option<u64>) -> Result<()> {
    set_both(resource, most, most)
}

/// Lowers a soft and a hard limit. A limit that is already lower stays.
fn set_both(resource: Resource, soft: Option<u64>, hard: Option<u64>) -> Result<()> {
    let now = getrlimit(resource);
    let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    let maximum = least(now.maximum, hard);
    let wanted = Rlimit { current: least(least(now.current, soft), maximum), maximum };
    setrlimit(resource, wanted).map_err(Error::at("setrlimit"))
}

/// The number of threads in all processes of this user.
pub(super) fn tasks_of_user() -> u64 {
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

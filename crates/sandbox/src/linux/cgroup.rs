//! A control group: the only limit on memory of every kind, and on threads that the superuser starts.
//!
//! Each confined process gets a group of its own: below the group that it was started in, or, with version 2, usually
//! beside that group. Both kinds of groups are known, the one tree of version 2 and a tree for each controller of
//! version 1. If this process may not make groups, the layers are missing.
//!
//! A process cannot remove the group it is in. So the next confined process removes the groups of those that have
//! ended.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::{Limits, Name, Report, State};

/// The beginning of a group's name; the number of the process follows.
const PREFIX: &str = "nearcall-";
/// In microseconds: how often a group gets a new share of processor time.
const PERIOD: u64 = 100_000;

/// A limit of a group: its controller, and the files with the values to write, for version 1 (`old`) and version 2
/// (`new`).
struct Wanted {
    controller: &'static str,
    old: Vec<(&'static str, String)>,
    new: Vec<(&'static str, String)>,
}

/// Moves this process into groups of its own, as far as it may.
pub(super) fn enter(limits: &Limits, report: &mut Report) {
    let groups = Groups::of_this_process();
    for (name, wanted) in [
        (Name::CgroupMemory, limits.memory.map(memory)),
        (Name::CgroupCpu, limits.cpu_share.map(cpu)),
        (Name::CgroupTasks, limits.tasks.map(tasks)),
    ] {
        let Some(wanted) = wanted else {
            report.add(name, State::NotAsked, "no limit was asked for");
            continue;
        };
        match groups.limit(&wanted) {
            Ok(Some(place)) => report.add(name, State::Provided, format!("limited by {}", place.display())),
            Ok(None) => {
                let why = format!("no control group of this process has the controller {:?}", wanted.controller);
                report.add(name, State::NotAvailable, why);
            }
            Err(why) => report.add(name, State::Refused, format!("no control group can be made: {why}")),
        }
    }
}

fn memory(bytes: u64) -> Wanted {
    Wanted {
        controller: "memory",
        old: vec![("memory.limit_in_bytes", bytes.to_string())],
        new: vec![("memory.max", bytes.to_string()), ("memory.swap.max", "0".into())],
    }
}

fn cpu(share: f64) -> Wanted {
    let quota = ((PERIOD as f64) * share) as u64;
    Wanted {
        controller: "cpu",
        old: vec![("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())],
        new: vec![("cpu.max", format!("{quota} {PERIOD}"))],
    }
}

fn tasks(most: u64) -> Wanted {
    Wanted { controller: "pids", old: vec![("pids.max", most.to_string())], new: vec![("pids.max", most.to_string())] }
}

/// In which groups this process is, and where they are mounted.
struct Groups {
    /// Lines of `/proc/self/cgroup`: controllers (none for version 2), and the group's path.
    paths: Vec<(Vec<String>, String)>,
    /// Mounts: the controllers (none for version 2), the directory, and the group that the directory shows.
    mounts: Vec<(Vec<String>, PathBuf, String)>,
}

impl Groups {
    fn of_this_process() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounted = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self { paths: own.lines().filter_map(group).collect(), mounts: mounted.lines().filter_map(mount).collect() }
    }

    /// The directory of this process's group for a controller, and whether the group is of version 2.
    fn directory(&self, controller: &str) -> Option<(PathBuf, bool)> {
        let has = |controllers: &[String]| controllers.iter().any(|known| known == controller);
        // A controller is either in a tree of version 1 or in that of version 2.
        let old = self.mounts.iter().find(|(controllers, ..)| has(controllers));
        let (mounted, is_new) = old.map(|found| (found, false)).or_else(|| {
            let new = self.mounts.iter().find(|(controllers, ..)| controllers.is_empty())?;
            Some((new, true))
        })?;
        let own = self.paths.iter().find(|(known, _)| if is_new { known.is_empty() } else { has(known) })?;
        let below = own.1.strip_prefix(mounted.2.as_str()).unwrap_or(&own.1).trim_start_matches('/');
        Some((mounted.1.join(below), is_new))
    }

    /// Limits this process. Returns the group's directory; `None` if there is no such controller.
    fn limit(&self, wanted: &Wanted) -> io::Result<Option<PathBuf>> {
        let Some((own, is_new)) = self.directory(wanted.controller) else { return Ok(None) };
        if !is_new {
            return enter_group(&own, &wanted.old).map(Some);
        }
        // A group of version 2 has either processes or limited groups below it, so the new group is usually beside the
        // group of this process.
        let hands_on = |group: &&Path| {
            let controllers = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
            controllers.split_whitespace().any(|known| known == wanted.controller)
        };
        // If another controller was asked for before, this process is already in its new group.
        let moved = own.file_name().is_some_and(|name| name.to_string_lossy() == group_name());
        let beside = if moved { own.parent() } else { None };
        match [beside, Some(own.as_path()), own.parent()].into_iter().flatten().find(hands_on) {
            Some(parent) => enter_group(parent, &wanted.new).map(Some),
            None => Ok(None),
        }
    }
}

fn group_name() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// Makes a group below `parent`, limits it, and moves this process there.
fn enter_group(parent: &Path, limits: &[(&str, String)]) -> io::Result<PathBuf> {
    remove_empty(parent);
    let group = parent.join(group_name());
    if let Err(why) = fs::create_dir(&group)
        && why.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(naming(&group, &why));
    }
    for (position, (file, value)) in limits.iter().enumerate() {
        let file = group.join(file);
        match fs::write(&file, value) {
            // The system may not count swap; it counts memory.
            Err(why) if position > 0 && why.kind() == io::ErrorKind::NotFound => {}
            written => written.map_err(|why| naming(&file, &why))?,
        }
    }
    let members = group.join("cgroup.procs");
    fs::write(&members, "0").map_err(|why| naming(&members, &why))?;
    Ok(group)
}

fn naming(path: &Path, why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{}: {why}", path.display()))
}

/// Removes the groups of processes that have ended.
fn remove_empty(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            // The kernel refuses if children of such a process are left.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Parses a line of `/proc/self/cgroup`: `4:memory:/path`, or `0::/path` for version 2.
fn group(line: &str) -> Option<(Vec<String>, String)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    Some((controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(), path.to_owned()))
}

/// Parses a line of `/proc/self/mountinfo`: the controllers, the directory, and the group that the directory shows.
fn mount(line: &str) -> Option<(Vec<String>, PathBuf, String)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, place) = (fields.next()?.to_owned(), PathBuf::from(fields.next()?));
    let mut fields = after.split(' ');
    match (fields.next()?, fields.nth(1)?) {
        ("cgroup2", _) => Some((Vec::new(), place, root)),
        ("cgroup", options) => {
            let controllers: Vec<_> = options.split(',').map(str::to_owned).collect();
            Some((controllers, place, root))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(own: &str, mounted: &str) -> Groups {
        Groups { paths: own.lines().filter_map(group).collect(), mounts: mounted.lines().filter_map(mount).collect() }
    }

    #[test]
    fn a_controller_is_found_in_its_own_tree() {
        let groups = groups(
            "5:memory:/a\n4:cpu,cpuacct:/b\n0::/c",
            "30 20 0:2 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             31 20 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             32 20 0:4 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        );
        assert_eq!(groups.directory("memory"), Some(("/sys/fs/cgroup/memory/a".into(), false)));
        assert_eq!(groups.directory("cpu"), Some(("/sys/fs/cgroup/cpu/b".into(), false)));
        assert_eq!(groups.directory("pids"), Some(("/sys/fs/cgroup/unified/c".into(), true)));
    }

    #[test]
    fn a_mount_may_show_a_part_of_the_tree() {
        let groups = groups("0::/box/inner", "32 20 0:4 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
        assert_eq!(groups.directory("memory"), Some(("/sys/fs/cgroup/inner".into(), true)));
    }

    #[test]
    fn without_mounts_there_is_nothing() {
        assert_eq!(groups("0::/", "").directory("memory"), None);
        assert_eq!(groups("", "32 20 0:4 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw").directory("memory"), None);
    }
}

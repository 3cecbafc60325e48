//! Namespaces: a view of the system in which there is less.
//!
//! The process gets users, mounts and System V objects of its own. If the policy allows neither a network nor abstract
//! sockets, the process gets an empty network, too. Its own mounts have an empty `/proc`, so that it cannot open its
//! own descriptors anew, nor look at other processes. Process numbers stay: a namespace would change them only for
//! children, and the host would talk to a process that it did not start.
//!
//! A process cannot leave its new namespaces, so they are tried in a child first.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount, open_tree,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::{Name, Network, Policy, Report, State};

/// Enters the namespaces, as far as this process may. Returns whether it is now in a user namespace of its own.
pub(super) fn enter(policy: &Policy, report: &mut Report) -> bool {
    let mut wanted = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    let alone = policy.network == Network::None && !policy.abstract_sockets;
    wanted.set(UnshareFlags::NEWNET, alone);
    let entered = match in_child(|| separate(wanted)).and_then(|()| separate(wanted)) {
        Ok(()) => {
            let network = if alone { ", and a network without any connection" } else { "" };
            report.add(
                Name::Namespaces,
                State::Provided,
                format!("users, mounts and System V objects of its own{network}"),
            );
            hide_proc(&policy.proc)
        }
        Err(why) => {
            let state = if why.raw_os_error() == Some(libc::ENOSYS) { State::NotAvailable } else { State::Refused };
            report.add(Name::Namespaces, state, format!("no namespaces can be made: {why}"));
            report.add(Name::Proc, state, "there are no mounts of its own to hide /proc in");
            return false;
        }
    };
    match entered {
        Ok(()) if policy.proc.is_empty() => report.add(Name::Proc, State::Provided, "/proc is empty"),
        Ok(()) => report.add(Name::Proc, State::Provided, format!("/proc has only {}", policy.proc.join(", "))),
        Err(why) => report.add(Name::Proc, State::Refused, format!("/proc cannot be hidden: {why}")),
    }
    true
}

/// Makes the namespaces. The user keeps its number, and is the only user in them.
fn separate(wanted: UnshareFlags) -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: `wanted` has no flag that separates descriptors, which is all that could break a promise of other code.
    unsafe { unshare_unsafe(wanted) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    // Mounts made here must not be seen outside.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(())
}

/// Puts an empty directory over `/proc`, with only `files` in it.
fn hide_proc(files: &[String]) -> io::Result<()> {
    let copies: Vec<(&String, OwnedFd)> =
        files.iter().map(|name| Ok((name, copy_of(name)?))).collect::<io::Result<_>>()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("nearcall", "/proc", "tmpfs", flags, Some(c"size=64k,mode=755"))?;
    for (name, copy) in copies {
        let place = Path::new("/proc").join(name);
        if let Some(directory) = place.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&place, "")?;
        move_mount(copy, "", CWD, &place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    }
    Ok(rustix::mount::mount_remount("/proc", flags | MountFlags::RDONLY, "")?)
}

/// A file of `/proc`, to be shown at another place.
fn copy_of(name: &str) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(open_tree(CWD, Path::new("/proc").join(name), flags)?)
}

/// Tries something in a child process, so that this process stays as it is, whatever happens. This process must have
/// one thread.
fn in_child(attempt: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: this process has one thread, so that the child may do whatever its parent may.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        let number = attempt().err().map_or(0, |why| why.raw_os_error().unwrap_or(libc::EPERM));
        // SAFETY: no preconditions. Nothing of the parent's is undone on the way out.
        unsafe { libc::_exit(number) }
    }
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a live local.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, number) => Err(io::Error::from_raw_os_error(number)),
        (false, _) => Err(io::Error::other("the child that tried it died")),
    }
}

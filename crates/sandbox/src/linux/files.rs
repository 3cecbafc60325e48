//! Landlock: files, TCP ports, signals and abstract sockets, by rules that the kernel keeps for this process.
//!
//! All rights of the newest known version of Landlock are asked for. The `landlock` crate leaves out those that the
//! kernel does not know, and the report says which layers are missing then.

use std::fs;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};

use crate::{Error, Name, Network, Policy, Report, Result, State};

/// The newest version whose rights are asked for.
const NEWEST: ABI = ABI::V10;

/// Sets the rules.
pub(super) fn restrict(policy: &Policy, report: &mut Report) -> Result<()> {
    let mut files = AccessFs::from_all(NEWEST);
    files.set(AccessFs::ResolveUnix, !policy.unix_sockets);
    let mut scopes = BitFlags::empty();
    scopes.set(Scope::Signal, !policy.signals);
    scopes.set(Scope::AbstractUnixSocket, !policy.abstract_sockets);
    let make = || -> std::result::Result<_, landlock::RulesetError> {
        let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(files)?;
        if policy.network != Network::All {
            rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
        }
        if !scopes.is_empty() {
            rules = rules.scope(scopes)?;
        }
        let mut rules = rules.create()?;
        if let Network::Ports(ports) = &policy.network {
            for &port in ports {
                rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
            }
        }
        Ok(rules)
    };
    let mut rules = make().map_err(broken)?;
    let program = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let proc: Vec<PathBuf> = policy.proc.iter().map(|name| PathBuf::from("/proc").join(name)).collect();
    let loaders = if policy.execute.is_empty() { Vec::new() } else { loaders() };
    let granted = [
        (&policy.read, read),
        (&proc, read),
        (&policy.write, written(policy)),
        (&policy.execute, program),
        (&loaders, program),
    ];
    for (paths, rights) in granted {
        for path in paths {
            let opened = PathFd::new(path).map_err(|why| Error::Path { path: path.clone(), why: io_error(why) })?;
            let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) };
            rules = rules.add_rule(PathBeneath::new(opened, rights)).map_err(broken)?;
        }
    }
    say(policy, &rules.restrict_self().map_err(broken)?, report);
    Ok(())
}

/// The C library's programs that load others: the kernel starts one of them for each program it starts.
fn loaders() -> Vec<PathBuf> {
    let directories = ["/lib", "/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"];
    let files = directories.into_iter().filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
    let is_loader = |name: &str| name.starts_with("ld-linux") || name.starts_with("ld-musl");
    files.filter(|file| file.file_name().to_str().is_some_and(is_loader)).map(|file| file.path()).collect()
}

/// The rights below a path that may be written to. No devices may be made, and sockets only if the policy allows Unix
/// sockets.
fn written(policy: &Policy) -> BitFlags<AccessFs> {
    let mut rights = AccessFs::from_all(NEWEST);
    rights.remove(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    if !policy.unix_sockets {
        rights.remove(AccessFs::MakeSock);
    }
    rights.remove(AccessFs::ResolveUnix);
    rights
}

fn say(policy: &Policy, status: &RestrictionStatus, report: &mut Report) {
    let (abi, none) = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => (effective_abi, ""),
        LandlockStatus::NotEnabled => (ABI::Unsupported, "Landlock is switched off when this system starts"),
        LandlockStatus::NotImplemented => (ABI::Unsupported, "this kernel has no Landlock (Linux 5.13 and newer)"),
    };
    if abi < ABI::V1 {
        report.add(Name::Files, State::NotAvailable, none);
    } else if abi < ABI::V3 {
        let why = "Landlock here cannot stop truncating files (Linux 6.2 can); opening and reading them is restricted";
        report.add(Name::Files, State::NotAvailable, why);
    } else {
        let version = abi as i32;
        let (read, write) = (policy.read.len() + policy.proc.len(), policy.write.len());
        let detail =
            format!("Landlock {version}: {read} paths to read, {write} to write, {} to start", policy.execute.len());
        report.add(Name::Files, State::Provided, detail);
    }
    for (name, wanted, since, what) in [
        (Name::Tcp, policy.network != Network::All, ABI::V4, "TCP ports (Linux 6.7)"),
        (Name::Signals, !policy.signals, ABI::V6, "signals (Linux 6.12)"),
        (Name::AbstractSockets, !policy.abstract_sockets, ABI::V6, "abstract sockets (Linux 6.12)"),
    ] {
        if !wanted {
            report.add(name, State::NotAsked, "the policy allows them all");
        } else if abi >= since {
            report.add(name, State::Provided, format!("Landlock restricts {what}"));
        } else {
            report.add(name, State::NotAvailable, format!("Landlock here does not restrict {what}"));
        }
    }
}

fn broken(why: landlock::RulesetError) -> Error {
    Error::System { what: "Landlock", why: std::io::Error::other(why) }
}

fn io_error(why: landlock::PathFdError) -> std::io::Error {
    match why {
        landlock::PathFdError::OpenCall { source, .. } => source,
        other => std::io::Error::other(other),
    }
}

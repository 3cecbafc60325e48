//! What a confined process may do. Everything that a policy does not name is refused.

use std::path::PathBuf;

use crate::{Error, Name, Result};

/// The files of `/proc` that a policy may name. None of them is about another process; none of the process's own opens
/// files anew, writes to memory, or shows the environment that the process was started with.
pub const PROC_FILES: [&str; 12] = [
    "cpuinfo",
    "loadavg",
    "meminfo",
    "stat",
    "uptime",
    "version",
    "self/cgroup",
    "self/limits",
    "self/maps",
    "self/stat",
    "self/statm",
    "self/status",
];

/// What a confined process may do.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Files, and directories with all below them, that may be read.
    pub read: Vec<PathBuf>,
    /// Files and directories that may be read, written, made, renamed and removed.
    pub write: Vec<PathBuf>,
    /// Files and directories that may be started as programs. Empty: no program at all.
    pub execute: Vec<PathBuf>,
    /// The process may make other processes.
    pub subprocesses: bool,
    /// Which connections may be made over a network.
    pub network: Network,
    /// Unix sockets may be made and connected to by their path.
    pub unix_sockets: bool,
    /// Abstract Unix sockets of other processes may be connected to.
    pub abstract_sockets: bool,
    /// Processes outside may be sent signals.
    pub signals: bool,
    /// How much of each resource may be used.
    pub limits: Limits,
    /// Names of the environment variables to keep.
    pub environment: Vec<String>,
    /// Numbers of the descriptors to keep.
    pub descriptors: Vec<i32>,
    /// Which of [`PROC_FILES`] may be read.
    pub proc: Vec<String>,
    /// Layers that must hold: it is an error if one does not.
    pub required: Vec<Name>,
}

/// Which connections may be made over a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// No connections.
    None,
    /// TCP, to these ports of any host. The process may not listen.
    Ports(Vec<u16>),
    /// TCP and UDP, in and out.
    All,
}

/// How much of each resource may be used. `None`: as much as the system gives.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Seconds of processor time, in total.
    pub cpu_seconds: Option<u64>,
    /// Share of one processor: 0.5 is half of it.
    pub cpu_share: Option<f64>,
    /// Threads and processes together.
    pub tasks: Option<u64>,
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// Bytes of one file.
    pub file_size: Option<u64>,
}

impl Policy {
    /// Refuses a policy that contradicts itself, before anything is changed.
    pub(crate) fn check(&self) -> Result<()> {
        for path in self.read.iter().chain(&self.write).chain(&self.execute) {
            if !path.is_absolute() {
                return Err(Error::Policy(format!("names {}: write the whole path, from /", path.display())));
            }
        }
        for name in &self.proc {
            if !PROC_FILES.contains(&name.as_str()) {
                let known = PROC_FILES.join(", ");
                return Err(Error::Policy(format!("asks for {name:?} of /proc: there may be {known}")));
            }
        }
        if self.abstract_sockets && !self.unix_sockets {
            return Err(Error::Policy("has abstract_sockets without unix_sockets: they are Unix sockets".into()));
        }
        if self.limits.cpu_share.is_some_and(|share| !(0.01..=1024.0).contains(&share)) {
            return Err(Error::Policy("has a cpu_share outside 0.01 to 1024 processors".into()));
        }
        Ok(())
    }
}

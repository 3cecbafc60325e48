//! What came of each layer.

/// A layer of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// No program that is started gets more rights than this process has.
    NoNewPrivs,
    /// The superuser's rights are gone.
    Capabilities,
    /// Only the environment variables that were to be kept are left.
    Environment,
    /// Only the descriptors that were to be kept are open.
    Descriptors,
    /// The process's own limits: memory, files, descriptors, processor time.
    Limits,
    /// A control group limits memory of every kind.
    CgroupMemory,
    /// A control group limits the share of the processors.
    CgroupCpu,
    /// A control group limits threads and processes.
    CgroupTasks,
    /// Namespaces of its own: users, mounts, network, System V objects.
    Namespaces,
    /// `/proc` is empty but for the files that were asked for.
    Proc,
    /// Landlock: files.
    Files,
    /// Landlock: TCP ports.
    Tcp,
    /// Landlock: signals.
    Signals,
    /// Landlock: abstract Unix sockets.
    AbstractSockets,
    /// seccomp: which system calls there are.
    SystemCalls,
}

/// All layers, in the order in which they are applied.
pub const LAYERS: [Name; 15] = [
    Name::Environment,
    Name::Descriptors,
    Name::CgroupMemory,
    Name::CgroupCpu,
    Name::CgroupTasks,
    Name::Namespaces,
    Name::Proc,
    Name::Capabilities,
    Name::NoNewPrivs,
    Name::Files,
    Name::Tcp,
    Name::Signals,
    Name::AbstractSockets,
    Name::Limits,
    Name::SystemCalls,
];

impl Name {
    /// As users write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoNewPrivs => "no_new_privs",
            Self::Capabilities => "capabilities",
            Self::Environment => "environment",
            Self::Descriptors => "descriptors",
            Self::Limits => "limits",
            Self::CgroupMemory => "cgroup_memory",
            Self::CgroupCpu => "cgroup_cpu",
            Self::CgroupTasks => "cgroup_tasks",
            Self::Namespaces => "namespaces",
            Self::Proc => "proc",
            Self::Files => "files",
            Self::Tcp => "tcp",
            Self::Signals => "signals",
            Self::AbstractSockets => "abstract_sockets",
            Self::SystemCalls => "system_calls",
        }
    }

    /// The layer of that name.
    pub fn of(text: &str) -> Option<Self> {
        LAYERS.into_iter().find(|name| name.as_str() == text)
    }
}

/// What came of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It holds.
    Provided,
    /// The policy does not ask for it.
    NotAsked,
    /// This kernel does not have it.
    NotAvailable,
    /// This system has it, and does not let this process use it.
    Refused,
}

impl State {
    /// As users see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provided => "provided",
            Self::NotAsked => "not_asked",
            Self::NotAvailable => "not_available",
            Self::Refused => "refused",
        }
    }
}

/// One layer, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Which one.
    pub name: Name,
    /// What came of it.
    pub state: State,
    /// What it does here, or why it is missing: one sentence.
    pub detail: String,
}

/// What came of all layers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they were applied.
    pub layers: Vec<Layer>,
}

impl Report {
    pub(crate) fn add(&mut self, name: Name, state: State, detail: impl Into<String>) {
        self.layers.push(Layer { name, state, detail: detail.into() });
    }

    /// Whether a layer holds.
    pub fn provides(&self, name: Name) -> bool {
        self.layers.iter().any(|layer| layer.name == name && layer.state == State::Provided)
    }

    /// Those of the named layers that were asked for and do not hold.
    pub(crate) fn missing_of(&self, names: &[Name]) -> Vec<Layer> {
        let missing = |layer: &&Layer| matches!(layer.state, State::NotAvailable | State::Refused);
        self.layers.iter().filter(missing).filter(|layer| names.contains(&layer.name)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_is_found_by_its_name() {
        for name in LAYERS {
            assert_eq!(Name::of(name.as_str()), Some(name));
        }
        assert_eq!(Name::of("seccomp"), None);
    }

    #[test]
    fn what_was_not_asked_for_is_not_missing() {
        let mut report = Report::default();
        report.add(Name::Tcp, State::NotAsked, "");
        report.add(Name::Files, State::Refused, "");
        let missing = report.missing_of(&[Name::Tcp, Name::Files, Name::Proc]);
        assert_eq!(missing.iter().map(|layer| layer.name).collect::<Vec<_>>(), [Name::Files]);
    }
}

//! The state of each layer after confining.

/// A layer of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// No program that is started gets more rights than this process has.
    NoNewPrivs,
    /// The superuser's rights are gone.
    Capabilities,
    /// Only the environment variables that the policy keeps are left.
    Environment,
    /// Only the descriptors that the policy keeps are open.
    Descriptors,
    /// The process's own limits: memory, files, descriptors, processor time.
    Limits,
    /// A control group limits memory of every kind.
    CgroupMemory,
    /// A control group limits the share of the processors.
    CgroupCpu,
    /// A control group limits threads and processes.
    CgroupTasks,
    /// Namespaces of the process's own: users, mounts, network, System V objects.
    Namespaces,
    /// `/proc` is empty except for the files that the policy names.
    Proc,
    /// Landlock: files.
    Files,
    /// Landlock: TCP ports.
    Tcp,
    /// Landlock: signals.
    Signals,
    /// Landlock: abstract Unix sockets.
    AbstractSockets,
    /// seccomp: which system calls the process may make.
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
    /// The name as users write it.
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

/// The state of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The layer holds.
    Provided,
    /// The policy does not ask for the layer.
    NotAsked,
    /// This kernel does not have the layer.
    NotAvailable,
    /// This system has the layer, but does not let this process use it.
    Refused,
}

impl State {
    /// The state as users see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provided => "provided",
            Self::NotAsked => "not_asked",
            Self::NotAvailable => "not_available",
            Self::Refused => "refused",
        }
    }
}

/// One layer and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Which layer.
    pub name: Name,
    /// The state of the layer.
    pub state: State,
    /// What the layer does here, or why it is missing: one sentence.
    pub detail: String,
}

/// The states of all layers.
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

    /// The layers among `names` that were asked for and do not hold.
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

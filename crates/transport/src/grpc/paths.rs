//! Paths of gRPC's methods.

use std::collections::HashMap;

/// What messages a client sends in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Messages {
    /// Exactly one: the arguments.
    One,
    /// Any number: the items of a stream.
    Stream,
    /// At least one: the arguments, and then the items of a stream.
    ArgumentsFirst,
}

/// A method as gRPC calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Its index among the server's methods.
    pub entry: u16,
    /// What the client sends.
    pub messages: Messages,
}

/// A method as a client calls it over gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodPath {
    /// `/package.Service/Method`
    pub path: String,
    /// The client sends a stream of messages.
    pub streams_in: bool,
    /// The server does.
    pub streams_out: bool,
}

/// Which methods gRPC's paths name, as in `/package.Service/Method`.
#[derive(Debug, Clone, Default)]
pub struct Paths(HashMap<String, Path>);

impl Paths {
    /// These.
    #[must_use]
    pub fn new(paths: HashMap<String, Path>) -> Self {
        Self(paths)
    }

    /// The method of that path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Path> {
        self.0.get(path).copied()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

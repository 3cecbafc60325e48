//! The error of every decoder in this crate.

/// The peer sent bytes that are not of this protocol: the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(
    /// What was wrong.
    pub &'static str,
);

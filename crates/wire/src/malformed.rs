//! What every decoder of this crate says of bytes that it cannot accept.

/// The peer sent something that is not of this protocol: the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(
    /// What was wrong.
    pub &'static str,
);

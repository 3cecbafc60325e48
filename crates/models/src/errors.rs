//! Stand-in for `crate::errors` of `crates/transport`: only what the outgoing queue uses.
#![allow(missing_docs, reason = "the real ones are documented where they are")]

#[derive(Debug, PartialEq, Eq)]
pub enum LinkError {
    Closed,
    Broken(String),
    Full,
    Exhausted(String),
    DeadlinePassed,
}

impl LinkError {
    pub fn spares_connection(&self) -> bool {
        !matches!(self, Self::Closed | Self::Broken(_))
    }
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

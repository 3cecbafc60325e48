//! Errors of confining. After any of them the process may be confined in part, and should end.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use crate::Layer;

/// Result of confining.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a process was not confined as its policy asks.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process has several threads. A layer binds the thread that asks for it and the threads that this one starts:
    /// all others would stay free.
    #[error(
        "this process has {0} threads: confine it before it starts any, right after its own start (importing numpy starts some)"
    )]
    Threads(usize),
    /// The policy contradicts itself, or asks for something that does not exist.
    #[error("the policy {0}")]
    Policy(String),
    /// A path of the policy cannot be opened.
    #[error("the policy names {path}: {why}")]
    Path {
        /// The path in the policy.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// Layers that the policy requires and the system does not give.
    #[error("{}", missing(.0))]
    Missing(Vec<Layer>),
    /// A step has failed that never should.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        why: io::Error,
    },
}

impl Error {
    /// For `map_err`: the error for a step that should never fail.
    #[cfg(target_os = "linux")]
    pub(crate) fn at<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |why| Self::System { what, why: why.into() }
    }
}

fn missing(layers: &[Layer]) -> String {
    let mut text = String::from("the policy requires what this system does not give");
    for layer in layers {
        let _ = write!(text, "; {}: {}", layer.name.as_str(), layer.detail);
    }
    text
}

//! Confines the process it runs in, for ever, before foreign code is loaded into it.
//!
//! [`Policy`] says what the process may do afterwards, [`apply`] takes everything else away, and the [`Report`] says of
//! each layer whether this system gave it. No layer is trusted alone, and none is silently left out: a missing layer is
//! in the report, or an error if the policy requires it.
//!
//! Moving a process into a control group takes the system some time: [`Early`] begins while the process still imports.
//!
//! This crate does not start the process that it confines. A host starts an interpreter, which confines itself while it
//! has one thread.

mod error;
mod policy;
mod report;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod sync;
#[cfg(target_os = "linux")]
pub use linux::{Early, apply};

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Early, apply};

pub use error::{Error, Result};
pub use policy::{Limits, Network, PROC_FILES, Policy};
pub use report::{LAYERS, Layer, Name, Report, State};

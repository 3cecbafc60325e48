//! Systems other than Linux. Nothing is confined there yet, and the report says so.

use crate::{Error, LAYERS, Limits, Policy, Report, Result, State};

/// Stands for Linux's early move into control groups. There is nothing to begin here.
pub struct Early;

impl Early {
    /// Begins nothing.
    pub fn begin(_limits: Limits) -> Self {
        Self
    }
}

/// Confines nothing: every layer is reported as not available, which is an error if the policy requires any.
///
/// # Errors
/// As for Linux.
pub fn apply(policy: &Policy, _early: Option<Early>) -> Result<Report> {
    policy.check()?;
    let mut report = Report::default();
    for name in LAYERS {
        let why = format!("the sandbox is written for Linux only, and this is {}", std::env::consts::OS);
        report.add(name, State::NotAvailable, why);
    }
    let missing = report.missing_of(&policy.required);
    if missing.is_empty() { Ok(report) } else { Err(Error::Missing(missing)) }
}

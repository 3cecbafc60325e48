//! The budget of a channel, for retries in the core and for copies that Python sends.

use std::sync::Arc;

use nearcall_core::client::Budget;
use pyo3::prelude::*;

/// What bounds the calls that a channel sends again, or more than once, while servers fail.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RetryBudget(pub(crate) Arc<Budget>);

#[pymethods]
impl RetryBudget {
    #[new]
    fn new(max_tokens: f64, token_ratio: f64) -> Self {
        Self(Arc::new(Budget::new(max_tokens, token_ratio)))
    }

    /// Whether calls may be sent again.
    fn allows(&self) -> bool {
        self.0.allows()
    }

    /// A call has succeeded.
    fn succeeded(&self) {
        self.0.succeeded();
    }

    /// A call has failed.
    fn failed(&self) {
        self.0.failed();
    }
}

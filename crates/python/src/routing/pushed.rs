//! Tables that a route manager of RMR pushes.

use nearcall_core::lock::Mutex;
use nearcall_route::rmr::pushed::{Pushed, answer};
use pyo3::prelude::*;

/// Tables that a route manager of RMR pushes in pieces.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RoutePushed(Mutex<Pushed>);

#[pymethods]
impl RoutePushed {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Takes a message's payload. Returns, for each table that is whole now, its text and no problem; and for each that
    /// cannot be used an empty text, and what the manager is told.
    fn take(&self, payload: &[u8]) -> Vec<(String, Option<String>)> {
        let taken = self.0.lock().take(payload);
        let split = |taken| match taken {
            Ok(text) => (text, None),
            Err(problem) => (String::new(), Some(format!("ERR {problem}\n"))),
        };
        taken.into_iter().map(split).collect()
    }

    /// What the manager is told of a table; `problem` is why it is not used.
    #[staticmethod]
    #[pyo3(signature = (text, problem=None))]
    fn answer(text: &str, problem: Option<&str>) -> String {
        answer(text, problem)
    }
}

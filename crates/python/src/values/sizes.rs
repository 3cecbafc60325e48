//! The memory that values take, for the part of the package that reads types: it charges what the codecs do not see.

use nearcall_core::sizes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Bytes that a value of that kind takes: a set or a dict with room for `items`, which are not counted themselves.
#[pyfunction]
#[pyo3(signature = (kind, items=0))]
pub(crate) fn memory_of(kind: &str, items: usize) -> PyResult<usize> {
    match kind {
        "number" => Ok(sizes::NUMBER),
        // Its items count their places themselves.
        "list" => Ok(sizes::LIST),
        "set" => Ok(sizes::set(items)),
        "dict" => Ok(sizes::dict(items)),
        _ => Err(PyValueError::new_err(format!("no size of {kind:?} is known"))),
    }
}

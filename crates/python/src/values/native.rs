//! Values of types that msgpack has itself.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

/// Deeper than anything that can be encoded.
const DEEPEST: usize = 1000;

/// Whether a value consists only of `None`, `bool`, `int`, `float`, `str`, `bytes`, lists and dicts, not of subclasses.
#[pyfunction]
pub(crate) fn is_native(value: &Bound<'_, PyAny>) -> bool {
    within(value, 0)
}

fn within(value: &Bound<'_, PyAny>, depth: usize) -> bool {
    if let Ok(list) = value.cast_exact::<PyList>() {
        return depth < DEEPEST && list.iter().all(|item| within(&item, depth + 1));
    }
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        return depth < DEEPEST && dict.iter().all(|(key, item)| within(&key, depth + 1) && within(&item, depth + 1));
    }
    value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyBytes>()
}

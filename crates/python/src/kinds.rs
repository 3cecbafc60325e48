//! The exact types of the items of a collection, looked at without a line of Python for each.

use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyList, PyType};

use crate::callback::Callback;

/// Whether the exact type of each item of `values` is one of `kinds`. Raises what iterating over `values` raises.
#[pyfunction(signature = (values, kinds, /))]
pub(crate) fn all_of_kinds(values: &Bound<'_, PyAny>, kinds: &Bound<'_, PyFrozenSet>) -> PyResult<bool> {
    let mut known = None;
    if let Ok(list) = values.cast_exact::<PyList>() {
        for value in list {
            if !is_of(&value, kinds, &mut known)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    for value in values.items()? {
        if !is_of(&value?, kinds, &mut known)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a value is of one of `kinds`. `known`: the type of the value before it, which was one of them.
#[inline]
fn is_of<'py>(
    value: &Bound<'py, PyAny>,
    kinds: &Bound<'py, PyFrozenSet>,
    known: &mut Option<Bound<'py, PyType>>,
) -> PyResult<bool> {
    if known.as_ref().is_some_and(|known| known.as_type_ptr() == value.get_type_ptr()) {
        return Ok(true);
    }
    let kind = value.get_type();
    let is_one = kinds.contains(&kind)?;
    *known = Some(kind);
    Ok(is_one)
}

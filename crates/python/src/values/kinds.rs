//! The exact types of values, of the items of collections and of attributes, looked at without a line of Python for each.

use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyList, PyString, PyType};

use crate::gil::callback::Callback;

/// Whether the exact type of each item of `values` is one of `kinds`. Raises what iterating over `values` raises.
#[pyfunction(signature = (values, kinds, /))]
pub(crate) fn all_of_kinds(values: &Bound<'_, PyAny>, kinds: &Bound<'_, PyFrozenSet>) -> PyResult<bool> {
    let mut known = None;
    all(values, |value| is_of(value, kinds, &mut known))
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

fn all<'py>(
    values: &Bound<'py, PyAny>,
    mut is_one: impl FnMut(&Bound<'py, PyAny>) -> PyResult<bool>,
) -> PyResult<bool> {
    if let Ok(list) = values.cast_exact::<PyList>() {
        for value in list {
            if !is_one(&value)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    for value in values.items()? {
        if !is_one(&value?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Attributes of objects of one class, each with the exact types that its values may have.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Attributes(Vec<(Py<PyString>, Vec<Py<PyType>>)>);

#[pymethods]
impl Attributes {
    #[new]
    #[pyo3(signature = (expected, /))]
    fn new(expected: Vec<(Py<PyString>, Vec<Py<PyType>>)>) -> Self {
        Self(expected)
    }

    /// Whether the object has them all, and each is of such a type.
    #[pyo3(signature = (value, /))]
    pub(crate) fn fit(&self, value: &Bound<'_, PyAny>) -> bool {
        self.0.iter().all(|(name, types)| {
            value.attribute(name.bind(value.py())).is_ok_and(|attribute| {
                let is = attribute.get_type_ptr();
                types.iter().any(|expected| expected.as_ptr().cast() == is)
            })
        })
    }

    /// The same of each item. Raises what iterating over `values` raises.
    #[pyo3(signature = (values, /))]
    fn fit_all(&self, values: &Bound<'_, PyAny>) -> PyResult<bool> {
        all(values, |value| Ok(self.fit(value)))
    }
}

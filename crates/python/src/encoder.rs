//! Encoders of values that have to be looked at before they are sent.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::callback::Callback;

/// An attribute, and the exact types of which nothing is lost there.
type Field = (Py<PyString>, Vec<Py<PyType>>);

/// Encodes with one function what has the expected types, and with another one what has not. The look itself is done here:
/// in Python it took longer than to encode a small object.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct FittingEncoder {
    encode: Py<PyAny>,
    otherwise: Py<PyAny>,
    /// Attributes of the value, or of the items of the tuple that it is.
    expected: Vec<(Option<usize>, Vec<Field>)>,
}

#[pymethods]
impl FittingEncoder {
    #[new]
    fn new(encode: Py<PyAny>, otherwise: Py<PyAny>, expected: Vec<(Option<usize>, Vec<Field>)>) -> Self {
        Self { encode, otherwise, expected }
    }

    fn __call__<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let encode = if self.fits(value) { &self.encode } else { &self.otherwise };
        encode.bind(value.py()).run([value])
    }
}

impl FittingEncoder {
    fn fits(&self, value: &Bound<'_, PyAny>) -> bool {
        self.expected.iter().all(|(index, fields)| match index {
            None => fit(value, fields),
            Some(index) => value
                .cast_exact::<PyTuple>()
                .is_ok_and(|values| values.get_borrowed_item(*index).is_ok_and(|value| fit(&value, fields))),
        })
    }
}

fn fit(value: &Bound<'_, PyAny>, fields: &[Field]) -> bool {
    fields.iter().all(|(name, types)| {
        value.attribute(name.bind(value.py())).is_ok_and(|attribute| {
            let is = attribute.get_type_ptr();
            types.iter().any(|expected| expected.as_ptr().cast() == is)
        })
    })
}

/// A function of the codec that encodes.
#[derive(Debug)]
pub(crate) enum Encoder {
    Function(Py<PyAny>),
    Fitting(Py<FittingEncoder>),
}

impl Encoder {
    pub(crate) fn of(function: Bound<'_, PyAny>) -> Self {
        match function.cast_into::<FittingEncoder>() {
            Ok(fitting) => Self::Fitting(fitting.unbind()),
            Err(other) => Self::Function(other.into_inner().unbind()),
        }
    }

    #[inline]
    pub(crate) fn run<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Function(function) => function.bind(value.py()).run([value]),
            Self::Fitting(fitting) => fitting.get().__call__(value),
        }
    }
}

//! How values become bytes and back: functions of Python, or what is done here.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::callback::Callback;
use crate::encoded::{LentBuffer, Main};
use crate::protobuf::ProtobufCodec;

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

/// What encodes.
#[derive(Debug)]
pub(crate) enum Encoder {
    Function(Py<PyAny>),
    Fitting(Py<FittingEncoder>),
    Protobuf(Py<ProtobufCodec>),
}

impl Encoder {
    pub(crate) fn of(function: Bound<'_, PyAny>) -> Self {
        match function.cast_into::<FittingEncoder>() {
            Ok(fitting) => Self::Fitting(fitting.unbind()),
            Err(other) => match other.into_inner().cast_into::<ProtobufCodec>() {
                Ok(codec) => Self::Protobuf(codec.unbind()),
                Err(other) => Self::Function(other.into_inner().unbind()),
            },
        }
    }

    /// The payload of a value that has no buffers beside it.
    #[inline]
    pub(crate) fn main<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Main<'py>> {
        match self {
            Self::Protobuf(codec) => codec.get().gather(value).map(|gathered| Main::Gathered(Box::new(gathered))),
            _ => Ok(Main::Lent(LentBuffer::Bytes(self.run(value)?.cast_into()?))),
        }
    }

    /// Whether no arguments at all are no bytes at all.
    #[inline]
    pub(crate) fn has_empty(&self) -> bool {
        match self {
            Self::Protobuf(codec) => codec.get().has_empty(),
            _ => true,
        }
    }

    #[inline]
    pub(crate) fn run<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Function(function) => function.bind(value.py()).run([value]),
            Self::Fitting(fitting) => fitting.get().__call__(value),
            Self::Protobuf(codec) => codec.get().encode(value).map(Bound::into_any),
        }
    }
}

/// What decodes.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// A function of Python, of msgpack that was looked at before.
    Function(Py<PyAny>),
    /// Counts values itself, and looks at keys itself.
    Protobuf(Py<ProtobufCodec>),
}

impl Decoder {
    pub(crate) fn of(function: Bound<'_, PyAny>) -> Self {
        match function.cast_into::<ProtobufCodec>() {
            Ok(codec) => Self::Protobuf(codec.unbind()),
            Err(other) => Self::Function(other.into_inner().unbind()),
        }
    }

    /// Whether no arguments at all are no bytes at all, so that there is nothing to look at.
    #[inline]
    pub(crate) fn has_empty(&self) -> bool {
        match self {
            Self::Function(_) => true,
            Self::Protobuf(codec) => codec.get().has_empty(),
        }
    }

    /// The function of msgpack, which alone has buffers beside it and arguments by name.
    pub(crate) fn function<'a, 'py>(&'a self, py: Python<'py>) -> PyResult<&'a Bound<'py, PyAny>> {
        match self {
            Self::Function(function) => Ok(function.bind(py)),
            Self::Protobuf(_) => Err(PyTypeError::new_err("a Protobuf message has no buffers beside it")),
        }
    }
}

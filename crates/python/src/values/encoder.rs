//! How values become bytes and back: by Python functions, those of users among them, or by the Protobuf codec of this crate.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::gil::callback::Callback;
use crate::values::encoded::{LentBuffer, Main};
use crate::values::kinds::Attributes;
use crate::values::protobuf::ProtobufCodec;

/// Encodes values of the expected types with one function, and all others with another one. The types are compared
/// here: in Python that took longer than encoding a small object.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct FittingEncoder {
    encode: Py<PyAny>,
    otherwise: Py<PyAny>,
    /// What the value itself has to have (`None`), or an item of the tuple that the value is.
    expected: Vec<(Option<usize>, Py<Attributes>)>,
}

#[pymethods]
impl FittingEncoder {
    #[new]
    fn new(encode: Py<PyAny>, otherwise: Py<PyAny>, expected: Vec<(Option<usize>, Py<Attributes>)>) -> Self {
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
            None => fields.get().fit(value),
            Some(index) => value
                .cast_exact::<PyTuple>()
                .is_ok_and(|values| values.get_borrowed_item(*index).is_ok_and(|value| fields.get().fit(&value))),
        })
    }
}

/// What encodes values.
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

    /// Whether an empty list of arguments is encoded as no bytes at all, so that there is nothing to decode either.
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

/// What decodes values.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// A Python function for msgpack, which `Coding` checks before. Only msgpack has buffers beside the message, and arguments
    /// by name.
    Msgpack(Py<PyAny>),
    /// The Protobuf codec, which counts values and checks keys itself.
    Protobuf(Py<ProtobufCodec>),
    /// A Python function for messages that nobody here can read: each of their bytes counts as a value.
    Opaque(Py<PyAny>),
}

impl Decoder {
    /// The decoder of a coding that says what its values weigh, or not, as only msgpack's do.
    pub(crate) fn of(function: Bound<'_, PyAny>, weighed: bool) -> Self {
        match function.cast_into::<ProtobufCodec>() {
            Ok(codec) => Self::Protobuf(codec.unbind()),
            Err(other) if weighed => Self::Msgpack(other.into_inner().unbind()),
            Err(other) => Self::Opaque(other.into_inner().unbind()),
        }
    }

    /// The Python function of a codec with buffers beside the message.
    pub(crate) fn function<'a, 'py>(&'a self, py: Python<'py>) -> PyResult<&'a Bound<'py, PyAny>> {
        match self {
            Self::Msgpack(function) => Ok(function.bind(py)),
            _ => Err(PyTypeError::new_err("a message of this codec has no buffers beside it")),
        }
    }
}

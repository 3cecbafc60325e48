//! The messages of a service, and the codec of each message: the part that Python uses.

use std::sync::Arc;

use nearcall_core::server::ValueBudget;
use nearcall_core::{json as texts, protobuf};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::encode::Encoding;
use super::json;
use super::making::{Budget, Making};
use super::output::Output;
use super::plan::Plan;
use super::trouble::{Result, Trouble, Why};
use crate::values::encoded::{Gathered, Lent};

/// What a message has too much of.
#[derive(Debug)]
pub(crate) enum Excess {
    Values,
    Memory,
}

/// Bytes that most messages fit in.
const ROOM: usize = 128;

/// The messages of a service.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct ProtobufMessages {
    plan: Arc<Plan>,
}

#[pymethods]
impl ProtobufMessages {
    /// `messages` are `nearcall.codec.protobuf.messages.Message`s, which refer to each other by their index. `error`
    /// makes an exception from a text and a path.
    #[new]
    fn new(messages: &Bound<'_, PyAny>, error: Py<PyAny>) -> PyResult<Self> {
        Ok(Self { plan: Arc::new(Plan::read(messages, error)?) })
    }

    /// The codec of one message. With `single`, its values are tuples that hold only the message's value.
    #[pyo3(signature = (index, *, single=false, format="binary"))]
    fn codec(&self, index: usize, single: bool, format: &str) -> PyResult<ProtobufCodec> {
        let format = match format {
            "binary" => Format::Binary,
            "json" => Format::Json { strict: false },
            "strict json" => Format::Json { strict: true },
            other => return Err(PyValueError::new_err(format!("{other:?} is no format"))),
        };
        if index >= self.plan.messages.len() {
            return Err(PyIndexError::new_err("there is no such message"));
        }
        let checks = self.plan.checks(index);
        Ok(ProtobufCodec { plan: Arc::clone(&self.plan), index, single, format, checks })
    }
}

/// How a message is written.
#[derive(Debug, Clone, Copy)]
enum Format {
    Binary,
    /// `strict`: see [`json::read`].
    Json {
        strict: bool,
    },
}

/// Encodes and decodes the values of one message.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct ProtobufCodec {
    plan: Arc<Plan>,
    index: usize,
    single: bool,
    format: Format,
    /// Classes of the values in it want to look at them.
    checks: bool,
}

#[pymethods]
impl ProtobufCodec {
    /// The bytes of a value.
    pub(crate) fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(value.py(), &self.gather(value)?.pieces().concat()))
    }

    /// The value of some bytes that hold at most `max_values` values.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        body: &Bound<'py, PyBytes>,
        max_values: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let decoded = self.decode_within(py, body.as_bytes(), max_values, None)?;
        decoded.map_err(|_| Trouble::new(Why::TooMany).into_exception(py, &self.plan.error))
    }
}

impl ProtobufCodec {
    /// The bytes of a value, without copies of the long buffers in it.
    pub(crate) fn gather<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Gathered<'py>> {
        let only = if self.single { Some(value.cast::<PyTuple>()?.get_item(0)?) } else { None };
        let value = only.as_ref().unwrap_or(value);
        match self.format {
            Format::Binary => {
                let mut out = protobuf::Writer::with_capacity(ROOM);
                let lent = self.write(value, &mut out)?;
                Ok(Gathered { written: out.into_bytes(), lent })
            }
            Format::Json { .. } => {
                let mut out = texts::Writer::with_capacity(ROOM);
                let lent = self.write(value, &mut out)?;
                Ok(Gathered { written: out.into_bytes(), lent })
            }
        }
    }

    fn write<'py, O: Output>(&self, value: &Bound<'py, PyAny>, out: &mut O) -> PyResult<Lent<'py>> {
        let (py, mut lent) = (value.py(), Lent::new());
        let mut encoding = Encoding { py, plan: &self.plan, out, lent: &mut lent };
        // In Protobuf's bytes the outermost message has no length in front.
        let put = if O::JSON { encoding.whole(self.index, value, 1) } else { encoding.message(self.index, value, 1) };
        match put {
            Ok(()) => Ok(lent),
            Err(trouble) => Err(trouble.into_exception(py, &self.plan.error)),
        }
    }

    /// Whether a message without fields is encoded as no bytes at all.
    pub(crate) fn has_empty(&self) -> bool {
        matches!(self.format, Format::Binary)
    }

    /// The value of some bytes that hold at most `max_values` values. What these take is charged to `memory`.
    pub(crate) fn decode_within<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
        max_values: usize,
        memory: Option<ValueBudget<'_>>,
    ) -> PyResult<std::result::Result<Bound<'py, PyAny>, Excess>> {
        let decoded = if self.checks {
            // What is made first, and charged, is gone when the same values are made again.
            let looked_at = self.make(py, body, Budget::new(max_values, memory), true);
            looked_at.map(drop).and_then(|()| self.make(py, body, Budget::new(max_values, None), false))
        } else {
            self.make(py, body, Budget::new(max_values, memory), false)
        };
        match decoded {
            Ok(value) if self.single => Ok(Ok(PyTuple::new(py, [value])?.into_any())),
            Ok(value) => Ok(Ok(value)),
            Err(trouble) if matches!(trouble.why, Why::TooMany) => Ok(Err(Excess::Values)),
            Err(trouble) if matches!(trouble.why, Why::TooMuchMemory) => Ok(Err(Excess::Memory)),
            Err(trouble) => Err(trouble.into_exception(py, &self.plan.error)),
        }
    }

    fn make<'py>(&self, py: Python<'py>, body: &[u8], budget: Budget<'_>, checking: bool) -> Result<Bound<'py, PyAny>> {
        match self.format {
            Format::Binary => Making::new(py, &self.plan, budget, checking).message(self.index, &[body], 1),
            Format::Json { strict } => json::read(py, &self.plan, self.index, body, budget, strict, checking),
        }
    }
}

//! A payload about to be sent, and the Python objects that its bytes lie in.

use std::num::NonZeroU64;

use nearcall_core::{Body, Outgoing};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use smallvec::SmallVec;

use crate::gil::interpreter::detach;
use crate::values::unsent::Unsent;

/// From this length in bytes on, a payload is copied without the interpreter, so that other calls go on meanwhile.
pub(crate) const LONG: usize = 1 << 20;

/// A buffer that Python lends for as long as it is sent.
pub(crate) enum LentBuffer<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(PyUntypedBuffer),
}

impl<'py> LentBuffer<'py> {
    #[inline]
    pub(crate) fn take(value: Bound<'py, PyAny>) -> PyResult<Self> {
        match value.cast_into_exact::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(error) => {
                let value = error.into_inner();
                let buffer = PyUntypedBuffer::get(&value)?;
                if !buffer.is_c_contiguous() {
                    return Err(PyTypeError::new_err("the buffer is not C-contiguous: copy it first"));
                }
                Ok(Self::Buffer(buffer))
            }
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the buffer is contiguous, so it has that many bytes, and Python keeps them in place while the
            // buffer is held. Another thread may change them meanwhile: then the changed bytes are sent. They are only
            // copied, compressed or encrypted, and nothing is decided by them.
            Self::Buffer(buffer) => unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) },
        }
    }
}

/// Bytes that a codec wrote, and long buffers that belong between them.
pub(crate) struct Gathered<'py> {
    pub(crate) written: Vec<u8>,
    /// Each with the number of written bytes before it, in order.
    pub(crate) lent: Lent<'py>,
}

/// Long buffers of a payload.
pub(crate) type Lent<'py> = SmallVec<[(usize, LentBuffer<'py>); 1]>;

impl Gathered<'_> {
    /// The whole payload in order, as pieces.
    pub(crate) fn pieces(&self) -> SmallVec<[&[u8]; 3]> {
        let (mut pieces, mut from) = (SmallVec::new(), 0);
        for (at, lent) in &self.lent {
            pieces.push(&self.written[from..*at]);
            pieces.push(lent.as_slice());
            from = *at;
        }
        pieces.push(&self.written[from..]);
        pieces
    }
}

/// Buffers beside a payload.
pub(crate) type Buffers<'py> = SmallVec<[LentBuffer<'py>; 4]>;

/// A payload without the buffers beside it.
pub(crate) enum Main<'py> {
    Nothing,
    Lent(LentBuffer<'py>),
    Gathered(Box<Gathered<'py>>),
}

/// A payload about to be sent, and the Python objects its bytes lie in.
pub(crate) struct Encoded<'py> {
    pub(crate) body: Main<'py>,
    pub(crate) buffers: Option<Buffers<'py>>,
    pub(crate) named: bool,
    /// Objects that are given with the payload.
    pub(crate) unsent: Option<Box<Unsent>>,
    /// The value itself, if it may hold references to the other side's own objects: these must not be released before
    /// they are sent.
    pub(crate) kept: Option<Bound<'py, PyAny>>,
}

impl<'py> Encoded<'py> {
    pub(crate) fn whole(body: Main<'py>) -> Self {
        Self { body, buffers: None, named: false, unsent: None, kept: None }
    }

    pub(crate) fn empty() -> Self {
        Self::whole(Main::Nothing)
    }

    /// Calls `use_it` with the payload's pieces.
    #[inline]
    pub(crate) fn with<R>(&self, use_it: impl FnOnce(Body<'_>) -> R) -> R {
        let body = match &self.body {
            Main::Nothing => &[],
            Main::Lent(lent) => lent.as_slice(),
            Main::Gathered(gathered) => return use_it(Body::Pieces(&gathered.pieces())),
        };
        match &self.buffers {
            None => use_it(Body::Whole(body)),
            Some(buffers) => {
                let slices: SmallVec<[&[u8]; 4]> = buffers.iter().map(LentBuffer::as_slice).collect();
                use_it(Body::Parts(body, &slices))
            }
        }
    }

    /// Calls `send` with the payload's pieces; for a long payload without the interpreter, so that other calls go on
    /// meanwhile.
    #[inline]
    pub(crate) fn send<R: Send>(&self, py: Python<'_>, send: impl FnOnce(Body<'_>) -> R + Send) -> R {
        self.with(|body| if body.len() < LONG { send(body) } else { detach(py, || send(body)) })
    }

    /// The numbers of the objects that are given with the payload.
    #[inline]
    pub(crate) fn given(&self) -> &[NonZeroU64] {
        self.unsent.as_ref().map_or(&[], |unsent| unsent.given())
    }

    /// To be called when the payload was sent: the other side now has the objects given with it.
    #[inline]
    pub(crate) fn sent(&mut self) {
        if let Some(unsent) = self.unsent.take() {
            unsent.sent();
        }
    }

    /// The flags of the frame that carries the payload.
    pub(crate) fn flags(&self) -> u8 {
        if self.named { Outgoing::NAMED } else { 0 }
    }

    pub(crate) fn parts(encoded: &Bound<'py, PyAny>, first: Buffers<'py>) -> PyResult<Self> {
        let (body, buffers) = encoded.extract::<(Bound<'py, PyBytes>, Bound<'py, PyList>)>()?;
        let mut lent = first;
        for buffer in buffers {
            lent.push(LentBuffer::take(buffer)?);
        }
        Ok(Self { buffers: Some(lent), ..Self::whole(Main::Lent(LentBuffer::Bytes(body))) })
    }
}

//! A message that a node has taken in.

use std::ffi::c_int;
use std::sync::Arc;

use nearcall_core::Payload;
use nearcall_route::{Arrived, Delivery, Envelope, Head, Settled};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyType};

use crate::gil::callback::Callback;
use crate::gil::kept::Kept;
use crate::serving::route_codec::RouteCodec;
use crate::serving::route_owner::Owner;
use crate::values::payload::bytes;
use crate::values::view::fill;

/// A message that has arrived.
#[pyclass(frozen, subclass, module = "nearcall._core")]
pub(crate) struct RouteMessage {
    head: Head,
    /// The call that brought it.
    call: Payload,
    owner: Arc<Owner>,
    bytes: Kept,
    value: Kept,
    /// If it was kept for this node: who waits for word of what has become of it.
    delivery: Option<Box<Delivery>>,
}

impl RouteMessage {
    #[inline]
    pub(crate) fn new(head: Head, call: Payload, owner: &Arc<Owner>) -> Self {
        let owner = Arc::clone(owner);
        Self { head, call, owner, bytes: Kept::default(), value: Kept::default(), delivery: None }
    }

    /// One that has waited in an inbox.
    pub(crate) fn waited(arrived: Arrived, owner: &Arc<Owner>) -> Self {
        let Arrived { head, call, delivery, .. } = arrived;
        Self { delivery, ..Self::new(head, call, owner) }
    }

    /// Says what has become of it, if that is asked.
    pub(crate) fn end(&self, how: Settled) {
        if let Some(delivery) = &self.delivery {
            delivery.settle(how);
        }
    }

    /// Its type.
    #[inline]
    pub(crate) fn kind(&self) -> i32 {
        self.head.kind
    }

    /// Its payload as an object, made by a codec.
    pub(crate) fn decode<'py>(&self, py: Python<'py>, codec: &RouteCodec) -> PyResult<Bound<'py, PyAny>> {
        let payload = self.payload(py)?;
        let value = codec.decode(py, payload.cast::<PyBytes>()?.as_bytes())?;
        Ok(self.value.keep(value.into_bound(py)))
    }

    /// What its sender has said of it.
    pub(crate) fn envelope(&self) -> Envelope<'_> {
        self.head.envelope(&self.call)
    }
}

#[pymethods]
impl RouteMessage {
    /// The message's type, a number.
    #[getter(r#type)]
    fn number(&self) -> i32 {
        self.head.kind
    }

    /// Its subscription; -1 if it has none.
    #[getter]
    fn subscription(&self) -> i32 {
        self.head.subscription
    }

    /// The number that a message and the reply to it share; empty if it has none.
    #[getter]
    fn transaction(&self) -> &[u8] {
        self.head.transaction(&self.call)
    }

    /// The managed entity that the message concerns; empty if it names none.
    #[getter]
    fn entity(&self) -> &str {
        self.head.entity(&self.call)
    }

    /// The name of the node that has sent it.
    #[getter]
    fn source(&self) -> &str {
        self.head.source(&self.call)
    }

    /// Where that node takes replies; empty if it takes none.
    #[getter]
    pub(crate) fn address(&self) -> &str {
        self.head.address(&self.call)
    }

    /// Data that travels along for tracing; a reply carries it back.
    #[getter]
    fn trace(&self) -> &[u8] {
        self.head.trace(&self.call)
    }

    /// Its payload, as bytes of this process's own.
    #[getter]
    pub(crate) fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(bytes) = self.bytes.get(py) {
            return Ok(bytes);
        }
        Ok(self.bytes.keep(bytes(py, &self.call, self.head.begin(), self.__len__())?.into_any()))
    }

    /// Its payload where it lies: over shared memory a long one is not copied. Its memory goes back to the sender when the
    /// message and the last view of it are gone.
    #[getter]
    fn view<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    /// Its payload as an object of the type that is bound to the message's type, or that the handler asks for.
    #[getter]
    pub(crate) fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(value) = self.value.get(py) {
            return Ok(value);
        }
        if let Some(codec) = self.owner.handler(py, self.head.kind).and_then(|handler| handler.codec) {
            return self.decode(py, codec.get());
        }
        let kind = self.head.kind.into_pyobject(py)?;
        let codec = self.owner.codec_of.bind(py).run([kind.as_any()])?.cast_into::<RouteCodec>()?;
        self.decode(py, codec.get())
    }

    /// Sends a message back to the sender, with the same transaction number. That needs no table.
    #[pyo3(signature = (payload=None, *, r#type=None, timeout=None))]
    fn reply<'py>(
        slf: &Bound<'py, Self>,
        payload: Option<&Bound<'py, PyAny>>,
        r#type: Option<Bound<'py, PyAny>>,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let none = |given: Option<Bound<'py, PyAny>>| given.unwrap_or_else(|| py.None().into_bound(py));
        let empty = PyBytes::new(py, b"").into_any();
        let reply = slf.get().owner.reply.bind(py);
        reply.run([slf.as_any(), payload.unwrap_or(&empty), &none(r#type), &none(timeout)])
    }

    /// Says of a message that was kept for this node whether it was handled; if not, it comes again. The first word counts.
    #[pyo3(name = "_settle")]
    fn settle(&self, handled: bool) {
        self.end(if handled { Settled::Handled } else { Settled::Failed });
    }

    /// Bytes of the payload.
    fn __len__(&self) -> usize {
        self.call.len() - self.head.begin()
    }

    #[expect(clippy::unused_self, reason = "the signature PyO3 asks for")]
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let (kind, source, len) = (self.head.kind, self.source(), self.__len__());
        let about = match self.head.subscription {
            -1 => String::new(),
            subscription => format!(" of subscription {subscription}"),
        };
        let source = if source.is_empty() { "nobody" } else { source };
        format!("<message of type {kind}{about} from {source}, {len} bytes>")
    }

    #[classmethod]
    fn __class_getitem__<'py>(cls: &Bound<'py, PyType>, item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.run([cls.as_any(), item])
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        // A Python object does not move, nor does the payload in it.
        let start = this.call.address(this.head.begin()).cast_mut();
        // SAFETY: Python passes a valid view to fill; the memory lives as long as `slf`.
        unsafe { fill(slf.as_any(), view, start, this.__len__(), true, flags) }
    }
}

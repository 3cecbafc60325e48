//! Objects that cross a connection by reference. Their calls go over the same connection, in either direction.

use std::num::NonZeroU64;
use std::sync::Arc;

use nearcall_core::Failure;
use nearcall_core::client::Connection as Core;
use pyo3::prelude::*;

use crate::calls::callees::Calls;
use crate::calls::calling::{Calling, Way};
use crate::calls::crossing::{self, Attached, note_given, note_taken};
use crate::calls::target::{Hold, Target, gone};
use crate::gil::callback::Callback;
use crate::gil::errors::raise;
use crate::references::objects::{Given, ServedObject};

/// The connection for which this thread now encodes or decodes a value, if the value may hold references.
#[pyfunction]
pub(crate) fn current_references() -> Option<References> {
    crossing::current().map(|(hold, attached)| References { hold, attached })
}

/// The objects that cross one connection by reference, both ways.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct References {
    hold: Hold,
    attached: Arc<Attached>,
}

#[pymethods]
impl References {
    /// Counts one more reference to an own object that is about to be sent, and keeps the object until the other side
    /// has released it. Returns the object's number on this connection.
    fn give(&self, py: Python<'_>, object: Py<PyAny>, served: Py<ServedObject>) -> PyResult<u64> {
        let core = self.core(py)?;
        let identity = (object.as_ptr().addr(), served.as_ptr().addr());
        let methods = Arc::clone(&served.get().methods);
        let id = core.give(identity, &methods, || Box::new(Given { object, served }));
        let id = id.map_err(|failure| raise(py, &failure))?;
        note_given(&self.attached, id);
        Ok(id.get())
    }

    /// Notes that a reference was taken out of the message that is decoded: the code that took it releases it.
    fn take(&self, id: u64) {
        if let Some(id) = NonZeroU64::new(id) {
            note_taken(&self.attached, id);
        }
    }

    /// The own object of that number, which the other side has sent back.
    fn mine(&self, py: Python<'_>, id: u64) -> PyResult<Py<PyAny>> {
        let export = NonZeroU64::new(id).and_then(|id| self.hold.core()?.given(id));
        if let Some(given) = export.as_ref().and_then(|export| Given::of(export.object())) {
            return Ok(given.object.clone_ref(py));
        }
        let text = format!("{} sent back an object that it was never given", self.attached.name);
        Err(raise(py, &Failure::new(Failure::INVALID_ARGUMENT, text)))
    }

    /// Tells the other side that `count` fewer references to its object are held here. Never waits, and never fails.
    fn release(&self, id: u64, count: u32) {
        if let Some(core) = self.hold.core()
            && let Some(id) = NonZeroU64::new(id)
            && count > 0
        {
            core.release(id, count);
        }
    }

    /// Whether the connection is alive, and of this process.
    #[getter]
    fn alive(&self) -> bool {
        self.hold.core().is_some_and(|core| !core.is_dead())
    }

    /// The URL of the other side, or another name for it.
    #[getter]
    fn url(&self) -> &str {
        &self.attached.name
    }

    /// The description of the server at the other end; empty if a client is there.
    #[getter]
    fn description(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.core(py)?.description().to_owned())
    }

    /// The object that the owner of the connection keeps with it, made when it is first asked for.
    #[getter]
    fn held(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(held) = this.attached.held.lock().as_ref() {
            return Ok(held.clone_ref(py));
        }
        // Outside the lock, because Python runs. Another thread may do the same meanwhile: then the first object stays.
        let made = this.attached.calling.make_passage.bind(py).run([slf.as_any()])?.unbind();
        Ok(this.attached.held.lock().get_or_insert_with(|| made.clone_ref(py)).clone_ref(py))
    }

    /// The other side's object with that number, to be called. `keeps` lives as long as its callables and their calls.
    fn target(&self, py: Python<'_>, id: u64, keeps: Py<PyAny>) -> PyResult<Calls> {
        let unknown = || raise(py, &Failure::new(Failure::INVALID_ARGUMENT, "0 is the number of no object"));
        let id = NonZeroU64::new(id).ok_or_else(unknown)?;
        let target = Target { hold: self.hold.clone(), id, name: Arc::clone(&self.attached.name), _keeps: keeps };
        Ok(Calls { calling: Calling { way: Way::Object(Arc::new(target)), ..self.attached.calling.clone() } })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| Arc::ptr_eq(&self.attached, &other.get().attached))
    }

    fn __hash__(&self) -> usize {
        Arc::as_ptr(&self.attached).addr()
    }

    fn __repr__(&self) -> String {
        format!("<references of the connection to {}>", self.attached.name)
    }
}

impl References {
    fn core(&self, py: Python<'_>) -> PyResult<Arc<Core>> {
        self.hold.core().ok_or_else(|| raise(py, &gone(&self.attached.name)))
    }
}

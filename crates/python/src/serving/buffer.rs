//! Memory that can be handed over to peers, as Python's buffer protocol shows it.

use std::ffi::c_int;
use std::sync::Arc;

use nearcall_core::{Buffer as Memory, BufferPool};
use pyo3::exceptions::PyOSError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::gil::interpreter::detach;
use crate::serving::context::Call;
use crate::values::view::fill;

/// Memory for arrays and bytes that will be sent: writable, and not copied on shared memory.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Buffer {
    memory: Arc<Memory>,
}

#[pymethods]
impl Buffer {
    /// `call` is the call that this thread serves, if any: the memory may then be some that its caller has seen before.
    #[new]
    fn new(py: Python<'_>, nbytes: usize, call: Option<&Call>) -> PyResult<Self> {
        let pool = call.map_or_else(BufferPool::common, Call::pool);
        let memory = match pool.reuse(nbytes) {
            Some(memory) => memory,
            None => detach(py, || pool.create(nbytes)).map_err(PyOSError::new_err)?,
        };
        Ok(Self { memory })
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = &slf.get().memory;
        // SAFETY: Python passes a valid view to fill; the memory lives as long as `slf`. Peers may read it meanwhile, and
        // nothing here refers to it.
        unsafe { fill(slf.as_any(), view, memory.as_ptr(), memory.len(), false, flags) }
    }
}

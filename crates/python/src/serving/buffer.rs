//! Memory that can be handed over to peers, as Python's buffer protocol shows it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use nearcall_core::{Buffer as Memory, BufferPool};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::{PyRef, ffi};

use crate::gil::interpreter::detach;
use crate::serving::context::Call;

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

    #[expect(clippy::needless_pass_by_value, reason = "the signature PyO3 asks for")]
    unsafe fn __getbuffer__(slf: PyRef<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, len) = (slf.memory.as_ptr(), slf.memory.len() as isize);
        // SAFETY: Python passes a valid view to fill; the memory stays alive as long as `slf`, which the view will own.
        // Peers may read it meanwhile, and nothing here refers to it.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast::<c_void>(), len, 0, flags) };
        if filled == -1 { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }

    #[expect(clippy::unused_self, reason = "the signature PyO3 asks for")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python passes the view that `__getbuffer__` filled; nothing in it needs freeing.
        unsafe { (*view).internal = ptr::null_mut() };
    }
}

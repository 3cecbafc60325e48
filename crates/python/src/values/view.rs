//! A received payload, or a part of it, that Python reads in place.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use nearcall_core::Payload;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use pyo3::{PyRef, ffi};

/// Exports a received buffer, read-only, for as long as a `memoryview` of it lives; a long payload on shared memory is not
/// copied, and its memory goes back to the sender when the last view is gone.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct View {
    payload: Arc<Payload>,
    offset: usize,
    len: usize,
}

impl View {
    /// A `memoryview` of a part of a payload.
    pub(crate) fn of<'py>(
        py: Python<'py>,
        payload: &Arc<Payload>,
        offset: usize,
        len: usize,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        debug_assert!(offset + len <= payload.len());
        let view = Bound::new(py, Self { payload: Arc::clone(payload), offset, len })?;
        PyMemoryView::from(view.as_any())
    }
}

#[pymethods]
impl View {
    #[expect(clippy::needless_pass_by_value, reason = "the signature PyO3 asks for")]
    unsafe fn __getbuffer__(slf: PyRef<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err(
                "a received message is read-only; copy it with bytearray(...) to change it",
            ));
        }
        // The payload does not move, for it lies behind an Arc.
        let start = slf.payload.address(slf.offset);
        // SAFETY: Python passes a valid view to fill; the memory stays alive as long as `slf`, which the view will own.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut().cast::<c_void>(), slf.len as isize, 1, flags)
        };
        if filled == -1 { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }

    #[expect(clippy::unused_self, reason = "the signature PyO3 asks for")]
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python passes the view that `__getbuffer__` filled; nothing in it needs freeing.
        unsafe { (*view).internal = ptr::null_mut() };
    }
}

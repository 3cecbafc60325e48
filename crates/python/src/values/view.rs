//! A received payload, or a part of it, that Python reads in place.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use nearcall_core::Payload;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

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
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        // The payload does not move, for it lies behind an Arc.
        let start = this.payload.address(this.offset).cast_mut();
        // SAFETY: Python passes a valid view to fill; the memory lives as long as `slf`.
        unsafe { fill(slf.as_any(), view, start, this.len, true, flags) }
    }
}

/// Fills a view of memory that an object has.
///
/// # Safety
///
/// `view` is to be filled, and the memory stays where it is for as long as the object lives, which the view will own.
pub(crate) unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    start: *mut u8,
    len: usize,
    readonly: bool,
    flags: c_int,
) -> PyResult<()> {
    if readonly && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err(
            "a received message is read-only; copy it with bytearray(...) to change it",
        ));
    }
    // SAFETY: as the caller promises.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start.cast::<c_void>(), len as isize, readonly.into(), flags)
    };
    if filled == -1 { Err(PyErr::fetch(owner.py())) } else { Ok(()) }
}

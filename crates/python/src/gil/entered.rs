//! Contexts of Python: what holds the values of its context variables.

use pyo3::ffi;
use pyo3::prelude::*;

/// A Python context that is current until this is dropped.
pub(crate) struct Entered<'py>(pub(crate) Bound<'py, PyAny>);

impl<'py> Entered<'py> {
    /// Enters a copy of the current context.
    #[inline]
    pub(crate) fn copy(py: Python<'py>) -> PyResult<Self> {
        // SAFETY: attached.
        let context = unsafe { ffi::PyContext_CopyCurrent() };
        // SAFETY: an owned reference, or null with an exception set.
        Self::enter(unsafe { Bound::from_owned_ptr_or_err(py, context) }?)
    }

    #[inline]
    pub(crate) fn enter(context: Bound<'py, PyAny>) -> PyResult<Self> {
        // SAFETY: attached; a context.
        let entered = unsafe { ffi::PyContext_Enter(context.as_ptr()) };
        if entered == 0 { Ok(Self(context)) } else { Err(PyErr::fetch(context.py())) }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: attached; this thread has entered the context, and left all that it entered later. No exception is
        // set: one that is being passed on is in a `PyErr`.
        if unsafe { ffi::PyContext_Exit(self.0.as_ptr()) } != 0 {
            PyErr::fetch(self.0.py()).write_unraisable(self.0.py(), None);
        }
    }
}

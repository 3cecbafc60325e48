//! An object that is made when it is first asked for, and kept.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

/// A place for one object. A cell that has its first maker waited for costs more than most of what is kept in this: here
/// several threads may make one, and the first is kept. It relies on the interpreter, which one thread has at a time.
#[derive(Debug, Default)]
pub(crate) struct Kept(AtomicPtr<ffi::PyObject>);

impl Kept {
    /// What is kept.
    #[inline]
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        // Relaxed: who asks has the interpreter, and who kept had it before.
        let kept = self.0.load(Ordering::Relaxed);
        // SAFETY: null, or an object of which this has a reference until it is dropped.
        unsafe { Bound::from_borrowed_ptr_or_opt(py, kept) }
    }

    /// Keeps an object, if none is kept. Returns the one that is.
    #[inline]
    pub(crate) fn keep<'py>(&self, made: Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        // Relaxed, both: as in `get`.
        match self.0.compare_exchange(null_mut(), made.as_ptr(), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // One reference is this cell's from now on.
                std::mem::forget(made.clone());
                made
            }
            // SAFETY: as in `get`.
            Err(kept) => unsafe { Bound::from_borrowed_ptr(made.py(), kept) },
        }
    }
}

impl Drop for Kept {
    #[inline]
    fn drop(&mut self) {
        let kept = *self.0.get_mut();
        if !kept.is_null() {
            // SAFETY: only to name the reference below, of which a `Py` is made that may be dropped anywhere.
            let py = unsafe { Python::assume_attached() };
            // SAFETY: the reference of `keep`.
            drop(unsafe { Bound::from_owned_ptr(py, kept) }.unbind());
        }
    }
}

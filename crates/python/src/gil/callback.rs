//! Calls of Python code during which the interpreter may end the calling thread.
//!
//! Up to Python 3.13, when the interpreter shuts down, it ends every thread but the main one with `pthread_exit` as
//! soon as the thread wants the interpreter back. That unwinds all frames of the thread, also those of this crate, and
//! aborts the process at the first call of a function that is declared not to unwind, as `PyO3` declares the functions
//! of Python. This module declares them as functions that may unwind. A thread that is ended waits in their caller for
//! the end of the process, as every thread does from Python 3.14 on. All Python code that takes more than a few
//! instructions is called through this module: handlers, codecs, iterators, event loops.

use std::ffi::c_int;

use pyo3::ffi::{self, PyObject, PySendResult};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{Borrowed, BoundObject, intern};
use smallvec::SmallVec;

use crate::gil::coroutine::Step;
use crate::gil::interpreter::may_switch;

// SAFETY: as in Python's headers; all of them are exported by every Python from 3.9 on.
unsafe extern "C-unwind" {
    fn PyObject_VectorcallDict(
        callable: *mut PyObject,
        arguments: *const *mut PyObject,
        count: usize,
        keywords: *mut PyObject,
    ) -> *mut PyObject;
    fn PyObject_VectorcallMethod(
        name: *mut PyObject,
        arguments: *const *mut PyObject,
        count: usize,
        keywords: *mut PyObject,
    ) -> *mut PyObject;
    fn PyObject_Call(callable: *mut PyObject, arguments: *mut PyObject, keywords: *mut PyObject) -> *mut PyObject;
    fn PyObject_GenericSetAttr(object: *mut PyObject, name: *mut PyObject, value: *mut PyObject) -> c_int;
    fn PyObject_GetAttr(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    fn PyObject_GetIter(object: *mut PyObject) -> *mut PyObject;
    fn PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
    fn PyIter_Send(iterator: *mut PyObject, value: *mut PyObject, result: *mut *mut PyObject) -> PySendResult;
}

/// Keeps a thread that is unwound by force from leaving the frame that holds this guard.
struct WaitForTheEnd;

impl Drop for WaitForTheEnd {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Runs `call`. If the thread is ended by force meanwhile, it waits here for the end of the process.
#[inline]
#[track_caller]
fn kept<R>(call: impl FnOnce() -> R) -> R {
    may_switch();
    let guard = WaitForTheEnd;
    let result = call();
    std::mem::forget(guard);
    result
}

/// Length of the array for a fast call: one free place, which the interpreter may use, and the most arguments there
/// are, with the object of a method.
const ROOM: usize = 5;

#[inline]
fn lay_out<const N: usize>(places: &mut [*mut PyObject], arguments: [&Bound<'_, PyAny>; N]) {
    assert!(N <= places.len(), "more arguments than there is room for");
    for (place, argument) in places.iter_mut().zip(arguments) {
        *place = argument.as_ptr();
    }
}

/// Python objects that are called, or asked for items.
pub(crate) trait Callback<'py> {
    /// Calls the object with some arguments.
    fn run<const N: usize>(&self, arguments: [&Bound<'py, PyAny>; N]) -> PyResult<Bound<'py, PyAny>>;

    /// Calls the object with any number of arguments, or with Rust values that are converted first.
    fn run_with<A: IntoPyObject<'py, Target = PyTuple>>(&self, arguments: A) -> PyResult<Bound<'py, PyAny>>;

    /// Calls the object with an argument, and with all items of a tuple after it.
    fn run_before(&self, first: &Bound<'py, PyAny>, others: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>>;

    /// Calls the object with any number of arguments. `names` are the names of the last ones.
    fn run_many(
        &self,
        arguments: &[Bound<'py, PyAny>],
        names: Option<&Bound<'py, PyTuple>>,
    ) -> PyResult<Bound<'py, PyAny>>;

    /// Sets an attribute as `object.__setattr__` does, even if the class has its own: objects are made as pickle makes
    /// them.
    fn set_plainly(&self, name: &Bound<'py, PyString>, value: &Bound<'py, PyAny>) -> PyResult<()>;

    /// Calls a method of the object with some arguments.
    fn run_method<const N: usize>(
        &self,
        name: &Bound<'py, PyString>,
        arguments: [&Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>>;

    /// An attribute of the object, which Python may have to compute.
    fn attribute(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>>;

    /// The object's items.
    fn items(&self) -> PyResult<Items<'py>>;

    /// Runs the object, a coroutine, until it waits for something or ends. `value` is what it waited for, and `None` at
    /// first.
    fn advance(&self, value: &Bound<'py, PyAny>) -> PyResult<Step<'py>>;

    /// Raises an exception in the object, a coroutine, where it waits.
    fn throw(&self, exception: &Bound<'py, PyAny>) -> PyResult<Step<'py>>;
}

impl<'py> Callback<'py> for Bound<'py, PyAny> {
    #[inline]
    fn run<const N: usize>(&self, arguments: [&Bound<'py, PyAny>; N]) -> PyResult<Bound<'py, PyAny>> {
        let mut places = [std::ptr::null_mut(); ROOM];
        lay_out(&mut places[1..], arguments);
        let result = kept(|| {
            let count = N | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            // SAFETY: attached, as the token of `self` shows; N live objects follow the free place.
            unsafe { PyObject_VectorcallDict(self.as_ptr(), places[1..].as_ptr(), count, std::ptr::null_mut()) }
        });
        // SAFETY: an owned reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), result) }
    }

    fn run_with<A: IntoPyObject<'py, Target = PyTuple>>(&self, arguments: A) -> PyResult<Bound<'py, PyAny>> {
        let arguments = arguments.into_pyobject(self.py()).map_err(Into::into)?;
        // SAFETY: attached; both are live objects.
        let result = kept(|| unsafe { PyObject_Call(self.as_ptr(), arguments.as_ptr(), std::ptr::null_mut()) });
        // SAFETY: an owned reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), result) }
    }

    #[inline]
    fn run_before(&self, first: &Bound<'py, PyAny>, others: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let mut places: SmallVec<[*mut PyObject; 8]> = SmallVec::new();
        places.extend([std::ptr::null_mut(), first.as_ptr()]);
        places.extend(others.iter_borrowed().map(Borrowed::as_ptr));
        let result = kept(|| {
            let count = (places.len() - 1) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            // SAFETY: attached; so many live objects, which `first` and the tuple hold, follow the free place.
            unsafe { PyObject_VectorcallDict(self.as_ptr(), places[1..].as_ptr(), count, std::ptr::null_mut()) }
        });
        // SAFETY: an owned reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), result) }
    }

    fn run_many(
        &self,
        arguments: &[Bound<'py, PyAny>],
        names: Option<&Bound<'py, PyTuple>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let named = names.map_or(0, PyTupleMethods::len);
        assert!(named <= arguments.len(), "more names than arguments");
        let (unnamed, values) = arguments.split_at(arguments.len() - named);
        // Python 3.10 exports no function that takes a tuple of names; later ones make a dict for most callables.
        let keywords = names.map(|_| PyDict::new(self.py()));
        if let (Some(names), Some(keywords)) = (names, &keywords) {
            for (name, value) in names.iter_borrowed().zip(values) {
                keywords.set_item(name, value)?;
            }
        }
        let keywords = keywords.as_ref().map_or(std::ptr::null_mut(), Bound::as_ptr);
        let places: SmallVec<[*mut PyObject; 16]> = unnamed.iter().map(Bound::as_ptr).collect();
        // SAFETY: attached; `places` holds that many live objects, and `keywords` is a dict or null.
        let result =
            kept(|| unsafe { PyObject_VectorcallDict(self.as_ptr(), places.as_ptr(), places.len(), keywords) });
        // SAFETY: an owned reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), result) }
    }

    #[inline]
    fn set_plainly(&self, name: &Bound<'py, PyString>, value: &Bound<'py, PyAny>) -> PyResult<()> {
        // SAFETY: attached; all three are live objects.
        let result = kept(|| unsafe { PyObject_GenericSetAttr(self.as_ptr(), name.as_ptr(), value.as_ptr()) });
        if result == 0 { Ok(()) } else { Err(PyErr::fetch(self.py())) }
    }

    fn run_method<const N: usize>(
        &self,
        name: &Bound<'py, PyString>,
        arguments: [&Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut places = [std::ptr::null_mut(); ROOM];
        places[1] = self.as_ptr();
        lay_out(&mut places[2..], arguments);
        let result = kept(|| {
            let count = (N + 1) | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            // SAFETY: attached; the object and N live arguments follow the free place.
            unsafe { PyObject_VectorcallMethod(name.as_ptr(), places[1..].as_ptr(), count, std::ptr::null_mut()) }
        });
        // SAFETY: an owned reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), result) }
    }

    #[inline]
    fn attribute(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: attached; both are live objects.
        let result = kept(|| unsafe { PyObject_GetAttr(self.as_ptr(), name.as_ptr()) });
        // SAFETY: an owned reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), result) }
    }

    fn items(&self) -> PyResult<Items<'py>> {
        // SAFETY: attached; a live object.
        let result = kept(|| unsafe { PyObject_GetIter(self.as_ptr()) });
        // SAFETY: an owned reference, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(self.py(), result) }.map(Items)
    }

    #[inline]
    fn advance(&self, value: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        let py = self.py();
        let mut result = std::ptr::null_mut();
        // SAFETY: attached; two live objects, and a place for the result.
        let sent = kept(|| unsafe { PyIter_Send(self.as_ptr(), value.as_ptr(), &raw mut result) });
        // SAFETY: an owned reference, or null with an exception set.
        let result = unsafe { Bound::from_owned_ptr_or_err(py, result) }?;
        Ok(if matches!(sent, PySendResult::PYGEN_RETURN) { Step::Returns(result) } else { Step::Yields(result) })
    }

    fn throw(&self, exception: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        self.run_method(intern!(self.py(), "throw"), [exception]).map(Step::Yields)
    }
}

/// An iterator of Python.
pub(crate) struct Items<'py>(Bound<'py, PyAny>);

impl<'py> Iterator for Items<'py> {
    type Item = PyResult<Bound<'py, PyAny>>;

    fn next(&mut self) -> Option<Self::Item> {
        let py = self.0.py();
        // SAFETY: attached; an iterator, as `PyObject_GetIter` made sure.
        let item = kept(|| unsafe { PyIter_Next(self.0.as_ptr()) });
        // SAFETY: an owned reference, or null: the end, or with an exception set.
        let item = unsafe { Bound::from_owned_ptr_or_opt(py, item) };
        item.map(Ok).or_else(|| PyErr::take(py).map(Err))
    }
}

//! What a server serves: methods with their handlers, and objects with the methods of their class.

use std::any::Any;
use std::sync::Arc;

use nearcall_core::{Methods, Object};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::gil::callback::Callback;
use crate::values::plan::Method;

/// A method and its handler.
pub(crate) struct Served {
    pub(crate) method: Py<Method>,
    /// `None` if the method is called on objects only.
    pub(crate) handler: Option<Py<PyAny>>,
}

/// The methods of the objects of one class, with their handlers.
#[pyclass(frozen, subclass, module = "nearcall._core")]
pub(crate) struct ServedObject {
    /// The number of the first method.
    first: u16,
    /// The methods by number, beginning with the first; `None` for numbers that objects of this class do not have.
    served: Vec<Option<Served>>,
    pub(crate) methods: Arc<Methods>,
}

impl Served {
    /// Calls the handler with arguments by position, behind the object if one is called.
    pub(crate) fn call<'py>(
        &self,
        py: Python<'py>,
        given: Option<&Given>,
        arguments: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let handler = self.handler(py);
        match given {
            None => handler.run_with(arguments),
            Some(given) => handler.run_before(given.object.bind(py), &arguments),
        }
    }

    pub(crate) fn handler<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.handler.as_ref().expect("the core refuses what is called on objects only").bind(py)
    }
}

#[pymethods]
impl ServedObject {
    /// Each method is found by its own number. Its handler is called with the object, then every parameter by position.
    #[new]
    fn new(methods: Vec<(Py<Method>, Py<PyAny>)>) -> Self {
        let kinds: Vec<_> = methods.iter().map(|(method, _)| (method.get().number, method.get().routing())).collect();
        let first = kinds.iter().map(|(number, _)| *number).min().unwrap_or(0);
        let mut served = Vec::new();
        for (method, handler) in methods {
            let at = usize::from(method.get().number - first);
            if at >= served.len() {
                served.resize_with(at + 1, || None);
            }
            served[at] = Some(Served { method, handler: Some(handler) });
        }
        Self { first, served, methods: Arc::new(Methods::new(kinds)) }
    }
}

impl ServedObject {
    /// The method of that number. The core has checked that it exists.
    pub(crate) fn method(&self, number: u16) -> &Served {
        let found = self.served[usize::from(number - self.first)].as_ref();
        found.expect("the core refuses calls of methods that an object does not have")
    }
}

/// An object that was given to a peer, with the methods that run its calls.
pub(crate) struct Given {
    pub(crate) object: Py<PyAny>,
    pub(crate) served: Py<ServedObject>,
}

impl Given {
    /// The `Given` inside an object that the core keeps.
    pub(crate) fn of(object: &(dyn Any + Send + Sync)) -> Option<&Self> {
        object.downcast_ref()
    }

    /// Takes the `Given` out of an object that the core has kept.
    pub(crate) fn taken(object: Object) -> Option<Self> {
        object.downcast().ok().map(|given| *given)
    }
}

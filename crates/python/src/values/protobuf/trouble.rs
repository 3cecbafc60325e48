//! Why a value cannot be encoded or decoded, and where in the message it is.

use nearcall_core::Malformed;
use nearcall_core::protobuf::MAX_DEPTH;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The reason, and the path to the value. Each level that the error passes adds a step to the path.
pub(super) struct Trouble {
    pub(super) why: Why,
    path: Vec<Step>,
    /// What a type raised over the value, with the user's own exception behind it, if it came from there.
    cause: Option<PyErr>,
}

pub(super) enum Why {
    /// A reason in one line.
    Misfit(String),
    /// The message holds more values than it may.
    TooMany,
    /// Its values would take more memory than their sender may use.
    TooMuchMemory,
    /// Python's own error.
    Raised(PyErr),
}

enum Step {
    Field(String),
    Index(usize),
    Key(String),
}

/// How many steps of a long path are shown at each end.
const SHOWN: usize = 8;

/// The error is in a box, because it is rare and large.
pub(super) type Result<T> = std::result::Result<T, Box<Trouble>>;

impl Trouble {
    #[cold]
    pub(super) fn misfit(message: impl Into<String>) -> Box<Self> {
        Self::new(Why::Misfit(message.into()))
    }

    #[cold]
    pub(super) fn new(why: Why) -> Box<Self> {
        Box::new(Self { why, path: Vec::new(), cause: None })
    }

    #[cold]
    pub(super) fn in_field(mut self: Box<Self>, name: &str) -> Box<Self> {
        if !name.is_empty() {
            self.path.push(Step::Field(name.to_owned()));
        }
        self
    }

    #[cold]
    pub(super) fn in_item(mut self: Box<Self>, index: usize) -> Box<Self> {
        self.path.push(Step::Index(index));
        self
    }

    #[cold]
    pub(super) fn in_key(mut self: Box<Self>, key: &Bound<'_, PyAny>) -> Box<Self> {
        let mut shown = key.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
        if let Some((end, _)) = shown.char_indices().nth(40) {
            shown.truncate(end);
            shown.push_str("...");
        }
        self.path.push(Step::Key(shown));
        self
    }

    /// The exception, which `error` makes of the message and the path: `shapes[3].name`.
    #[cold]
    pub(super) fn into_exception(self, py: Python<'_>, error: &Py<PyAny>) -> PyErr {
        let message = match self.why {
            Why::Raised(raised) => return raised,
            Why::TooMany => "holds more values than it may".to_owned(),
            Why::TooMuchMemory => "holds values that take more memory than they may".to_owned(),
            Why::Misfit(message) => message,
        };
        let mut path = String::new();
        for (index, step) in self.path.iter().rev().enumerate() {
            if (SHOWN..self.path.len().saturating_sub(SHOWN)).contains(&index) {
                if index == SHOWN {
                    path.push_str("...");
                }
                continue;
            }
            match step {
                Step::Field(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Step::Index(index) => path.extend(["[", &index.to_string(), "]"]),
                Step::Key(key) => path.extend(["[", key, "]"]),
            }
        }
        match error.call1(py, (message, path)) {
            Ok(exception) => {
                let exception = PyErr::from_value(exception.into_bound(py));
                exception.set_cause(py, self.cause);
                exception
            }
            Err(failed) => failed,
        }
    }
}

impl From<Malformed> for Box<Trouble> {
    #[cold]
    fn from(malformed: Malformed) -> Self {
        Trouble::misfit(malformed.0)
    }
}

impl From<String> for Box<Trouble> {
    #[cold]
    fn from(message: String) -> Self {
        Trouble::misfit(message)
    }
}

/// Refuses what is within more messages than there may be.
#[inline]
pub(super) fn deeper(depth: usize) -> Result<()> {
    let too_deep = || Trouble::misfit("more than 100 messages are within each other, or a value holds itself");
    if depth > MAX_DEPTH { Err(too_deep()) } else { Ok(()) }
}

/// A type refuses a value with `ValueError` or `TypeError`. Any other exception is an accident, and is kept as it is.
#[cold]
pub(super) fn refused(py: Python<'_>, error: PyErr) -> Box<Trouble> {
    if error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py) {
        let text = error.value(py).to_string();
        let mut trouble = Trouble::misfit(text.split_whitespace().collect::<Vec<_>>().join(" "));
        trouble.cause = Some(error);
        return trouble;
    }
    Trouble::new(Why::Raised(error))
}

pub(super) fn raised(error: PyErr) -> Box<Trouble> {
    Trouble::new(Why::Raised(error))
}

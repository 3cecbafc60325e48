//! What the surrounding `with` blocks say of the calls inside them: `nearcall.timeout`, `nearcall.metadata` and
//! `nearcall.compression`.

use std::time::{Duration, Instant};

use nearcall_core::{Compress, Encoding, Metadata, seconds_left};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat};
use pyo3::{ffi, intern};

use crate::asyncio::handler_loop;
use crate::gil::callback::Callback;
use crate::gil::metadata::{metadata_from, metadata_to};
use crate::gil::noted::{BLOCKS, HANDLER_LOOPS, note, noted};

/// The context variable that holds the deadline, seconds on the clock of `time.monotonic`.
static DEADLINE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// The context variable that holds the innermost `nearcall.metadata` block.
static METADATA: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// The context variable that holds the innermost `nearcall.compression` block.
static COMPRESSION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// The context variable that holds the request that a coroutine handler serves.
static REQUEST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Names the context variables that hold the deadline, the metadata, the compression and the request.
#[pyfunction]
pub(crate) fn set_call_variables(
    py: Python<'_>,
    deadline: Py<PyAny>,
    metadata: Py<PyAny>,
    compression: Py<PyAny>,
    request: Py<PyAny>,
) {
    let _ = DEADLINE.set(py, deadline);
    let _ = METADATA.set(py, metadata);
    let _ = COMPRESSION.set(py, compression);
    let _ = REQUEST.set(py, request);
}

/// Notes that a block is entered.
#[pyfunction]
pub(crate) fn note_block() {
    note(BLOCKS);
}

/// What the surrounding blocks say of a call that begins now.
#[derive(Default)]
pub(crate) struct Surroundings {
    /// The time left when it was last looked at: the shorter of what the surrounding block and the client allow.
    left: Option<Duration>,
    /// When `left` is over.
    until: Option<Instant>,
    /// The innermost metadata block, which gets the server's metadata.
    block: Option<Py<PyAny>>,
    /// The innermost compression block, which is asked anew for every message.
    compression: Option<Py<PyAny>>,
}

impl Surroundings {
    #[inline]
    pub(crate) fn look(py: Python<'_>, default: Option<Duration>) -> PyResult<Self> {
        if noted() & BLOCKS == 0 {
            return Ok(Self::within(default));
        }
        Self::look_closely(py, default)
    }

    /// Like `look`, for a call that its thread will wait for, which no thread does that runs coroutine handlers. `what`
    /// names the call.
    #[inline]
    pub(crate) fn look_and_wait(
        py: Python<'_>,
        default: Option<Duration>,
        what: impl FnOnce() -> String,
    ) -> PyResult<Self> {
        let noted = noted();
        if noted == 0 {
            return Ok(Self::within(default));
        }
        if noted & HANDLER_LOOPS != 0 {
            handler_loop::check(py, what)?;
        }
        Self::look(py, default)
    }

    #[cold]
    fn look_closely(py: Python<'_>, default: Option<Duration>) -> PyResult<Self> {
        let get = |variable: &PyOnceLock<Py<PyAny>>| match variable.get(py) {
            Some(variable) => variable.bind(py).run_method(intern!(py, "get"), []),
            None => Ok(py.None().into_bound(py)),
        };
        let left = get(&DEADLINE)?.extract::<Option<f64>>()?.map(|at| {
            let left = (at - nearcall_core::monotonic_seconds()).max(0.0);
            Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)
        });
        let left = left.into_iter().chain(default).min();
        let block = |variable| get(variable).map(|block| (!block.is_none()).then(|| block.unbind()));
        Ok(Self { block: block(&METADATA)?, compression: block(&COMPRESSION)?, ..Self::within(left) })
    }

    #[inline]
    fn within(left: Option<Duration>) -> Self {
        Self { left, until: left.and_then(|left| Instant::now().checked_add(left)), ..Self::default() }
    }

    /// The deadline.
    #[inline]
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// The time left when it was last looked at.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.left
    }

    /// The same with the time that is left now: some was spent on connecting, or on another attempt.
    #[cold]
    pub(crate) fn look_again(&self, py: Python<'_>) -> Self {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let (block, compression) = (self.block.as_ref(), self.compression.as_ref());
        Self {
            // Without `until`, `left` is unlimited or too long for the clock: it stays as it is.
            left: left.or(self.left),
            until: self.until,
            block: block.map(|block| block.clone_ref(py)),
            compression: compression.map(|block| block.clone_ref(py)),
        }
    }

    /// The time left in microseconds, for a frame.
    pub(crate) fn micros(&self) -> Option<u64> {
        self.left.map(|left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
    }

    /// Whether no surrounding block says more than a deadline.
    #[inline]
    pub(crate) fn has_no_blocks(&self) -> bool {
        self.block.is_none() && self.compression.is_none()
    }

    /// The metadata to send.
    pub(crate) fn metadata(&self, py: Python<'_>) -> PyResult<Option<Metadata>> {
        let Some(block) = &self.block else { return Ok(None) };
        Ok(Some(metadata_from(&block.bind(py).getattr("pairs")?)?))
    }

    /// Whether the message that is sent next is compressed.
    #[inline]
    pub(crate) fn compress(&self, py: Python<'_>) -> PyResult<Compress> {
        match &self.compression {
            None => Ok(Compress::AsUsual),
            Some(block) => asked_to_compress(block.bind(py)),
        }
    }

    /// Like `compress`, for a call that begins now, and with which encoding if the connection's options do not decide.
    #[inline]
    pub(crate) fn compression(&self, py: Python<'_>) -> PyResult<(Compress, Option<Encoding>)> {
        let Some(block) = &self.compression else { return Ok((Compress::AsUsual, None)) };
        let name: Option<String> = block.bind(py).getattr(intern!(py, "encoding"))?.extract()?;
        Ok((self.compress(py)?, name.and_then(|name| Encoding::named(name.as_bytes()))))
    }

    /// Gives the metadata that the server sent to the metadata block.
    #[inline]
    pub(crate) fn received(&self, py: Python<'_>, initial: bool, metadata: Option<&Metadata>) -> PyResult<()> {
        if let (Some(block), Some(metadata)) = (&self.block, metadata) {
            let pairs = metadata_to(py, metadata).into_pyobject(py)?;
            block.bind(py).run_method(intern!(py, "received"), [PyBool::new(py, initial).as_any(), pairs.as_any()])?;
        }
        Ok(())
    }
}

/// What a compression block says of the next message.
#[cold]
fn asked_to_compress(block: &Bound<'_, PyAny>) -> PyResult<Compress> {
    let py = block.py();
    if block.getattr(intern!(py, "encoding"))?.is_none() {
        return Ok(Compress::No);
    }
    Ok(match block.getattr(intern!(py, "compress"))?.extract::<Option<bool>>()? {
        None => Compress::AsUsual,
        Some(true) => Compress::Yes,
        // Other messages of the call may be compressed.
        Some(false) => Compress::NotThis,
    })
}

/// Makes a request's deadline the deadline of the calls that its handler makes, until this is dropped.
pub(crate) struct Inherited<'py>(Option<Bound<'py, PyAny>>);

impl<'py> Inherited<'py> {
    #[inline]
    pub(crate) fn enter(py: Python<'py>, until: Option<Instant>) -> PyResult<Self> {
        let token = until.zip(DEADLINE.get(py)).map(|(until, variable)| inherit(variable.bind(py), until));
        Ok(Self(token.transpose()?))
    }
}

fn inherit<'py>(variable: &Bound<'py, PyAny>, until: Instant) -> PyResult<Bound<'py, PyAny>> {
    let py = variable.py();
    let at = PyFloat::new(py, nearcall_core::monotonic_seconds() + seconds_left(until));
    note_block();
    variable.run_method(intern!(py, "set"), [at.as_any()])
}

/// Puts into the current context what a coroutine handler finds there: its request, and the request's deadline, which
/// the handler's own calls inherit.
#[inline]
pub(crate) fn surround(request: &Bound<'_, PyAny>, until: Option<Instant>) -> PyResult<()> {
    let py = request.py();
    if let Some(variable) = REQUEST.get(py) {
        // SAFETY: attached; a context variable and a live object.
        let token = unsafe { ffi::PyContextVar_Set(variable.as_ptr(), request.as_ptr()) };
        // SAFETY: an owned reference, or null with an exception set.
        drop(unsafe { Bound::from_owned_ptr_or_err(py, token) }?);
    }
    if let (Some(until), Some(variable)) = (until, DEADLINE.get(py)) {
        inherit(variable.bind(py), until)?;
    }
    Ok(())
}

impl Drop for Inherited<'_> {
    fn drop(&mut self) {
        if let Some(token) = &self.0
            && let Some(variable) = DEADLINE.get(token.py())
        {
            // The token is the variable's own and used once: this cannot fail.
            let _ = variable.bind(token.py()).run_method(intern!(token.py(), "reset"), [token]);
        }
    }
}

//! What is known of a method before it is called, read once from the plan that Python made.

use std::sync::atomic::{AtomicBool, Ordering};

use nearcall_core::client::Again;
use nearcall_core::lock::Mutex;
use nearcall_core::server::{HandlerKind, MethodRouting};
use nearcall_core::{Failure, Metadata, MethodPath, Weights};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};

use crate::gil::callback::Callback;
use crate::gil::errors::raise_for_call;
use crate::values::encoder::{Decoder, Encoder};
use crate::values::hashed::HashedKeys;

/// How a value crosses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Nothing,
    Bytes,
    Bytearray,
    Memoryview,
    Coded,
    Parts,
}

impl Form {
    fn parse(form: &str) -> PyResult<Self> {
        Ok(match form {
            "nothing" => Self::Nothing,
            "bytes" => Self::Bytes,
            "bytearray" => Self::Bytearray,
            "memoryview" => Self::Memoryview,
            "coded" => Self::Coded,
            "parts" => Self::Parts,
            other => return Err(PyValueError::new_err(format!("{other:?} is no form"))),
        })
    }

    pub(crate) fn is_buffer(self) -> bool {
        matches!(self, Self::Bytes | Self::Bytearray | Self::Memoryview)
    }
}

/// Exact types that need no check.
#[derive(Debug, FromPyObject)]
pub(crate) struct Accepts(Vec<Py<PyType>>);

impl Accepts {
    #[inline]
    pub(crate) fn has(&self, value: &Bound<'_, PyAny>) -> bool {
        let is = value.get_type_ptr();
        self.0.iter().any(|accepted| accepted.as_ptr().cast() == is)
    }
}

/// How messages of one kind are encoded and decoded, and the most that decoding one may cost.
#[derive(Debug)]
pub(crate) struct Coding {
    /// Whose messages they are.
    pub(crate) method: String,
    pub(crate) encode: Encoder,
    pub(crate) decode: Decoder,
    pub(crate) encode_error: Py<PyAny>,
    pub(crate) decode_error: Py<PyAny>,
    /// Encodes what `encode` refused in a way that takes longer and can more.
    pub(crate) encode_again: Option<Py<PyAny>>,
    /// The same for `decode`.
    pub(crate) decode_again: Option<Py<PyAny>>,
    pub(crate) max_values: usize,
    /// `None` if a peer can choose no keys that Python hashes without a secret.
    pub(crate) hashed: Option<HashedKeys>,
    /// What the values take in memory.
    pub(crate) weights: Weights,
    /// The values may hold references to objects.
    pub(crate) references: bool,
}

impl Coding {
    fn read(coding: &Bound<'_, PyAny>, method: &str, max_values: usize) -> PyResult<Self> {
        let (hashed, weights) = (coding.getattr("hashed")?, coding.getattr("weights")?);
        Ok(Self {
            method: method.to_owned(),
            encode: Encoder::of(coding.getattr("encode")?),
            decode: Decoder::of(coding.getattr("decode")?, !weights.is_none()),
            encode_error: coding.getattr("encode_error")?.unbind(),
            decode_error: coding.getattr("decode_error")?.unbind(),
            encode_again: coding.getattr("encode_again")?.extract()?,
            decode_again: coding.getattr("decode_again")?.extract()?,
            max_values,
            hashed: if hashed.is_none() { None } else { Some(HashedKeys::read(&hashed)?) },
            weights: read_weights(&weights)?,
            references: coding.getattr("references")?.extract()?,
        })
    }
}

/// Reads what `nearcall.codec.weights` says of a message's types; `None`: the codec weighs values while it decodes.
fn read_weights(said: &Bound<'_, PyAny>) -> PyResult<Weights> {
    if said.is_none() {
        return Ok(Weights::ANY);
    }
    Ok(Weights::new(
        said.getattr("least")?.extract()?,
        said.getattr("list")?.extract()?,
        said.getattr("sets")?.extract()?,
        said.getattr("map")?.extract()?,
        said.getattr("dicts")?.extract()?,
    ))
}

/// How a result or a stream item crosses.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) form: Form,
    pub(crate) coding: Coding,
    pub(crate) accepts: Accepts,
    pub(crate) check: Option<Py<PyAny>>,
}

impl Value {
    /// Whether the value may hold references to objects.
    #[inline]
    pub(crate) fn references(&self) -> bool {
        self.coding.references
    }

    fn read(plan: &Bound<'_, PyAny>, method: &str, max_values: usize) -> PyResult<Self> {
        let coding = plan.getattr("coding")?;
        Ok(Self {
            form: Form::parse(coding.getattr("form")?.cast::<PyString>()?.to_str()?)?,
            coding: Coding::read(&coding, method, max_values)?,
            accepts: plan.getattr("accepts")?.extract()?,
            check: plan.getattr("check")?.extract()?,
        })
    }
}

/// How the arguments of a method cross.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) forms: Vec<Form>,
    /// How many may be given by position.
    pub(crate) positional: usize,
    pub(crate) all_coded: bool,
    pub(crate) parts: bool,
    pub(crate) coding: Coding,
    /// `None`: `encode` takes a dict of some arguments as well as a tuple of all.
    pub(crate) encode_named: Option<Py<PyAny>>,
    /// `None`: no argument crosses by name.
    pub(crate) decode_named: Option<Py<PyAny>>,
    pub(crate) accepts: Vec<Accepts>,
    pub(crate) check_at: Py<PyAny>,
    pub(crate) bind: Py<PyAny>,
}

impl Arguments {
    /// Whether the arguments may hold references to objects.
    #[inline]
    pub(crate) fn references(&self) -> bool {
        self.coding.references
    }

    fn read(plan: &Bound<'_, PyAny>, method: &str, max_values: usize) -> PyResult<Self> {
        let coding = plan.getattr("coding")?;
        let forms: Vec<String> = coding.getattr("forms")?.extract()?;
        let forms = forms.iter().map(|form| Form::parse(form)).collect::<PyResult<Vec<Form>>>()?;
        Ok(Self {
            positional: plan.getattr("positional")?.extract()?,
            all_coded: !forms.iter().any(|form| form.is_buffer()),
            parts: forms.contains(&Form::Parts),
            forms,
            coding: Coding::read(&coding, method, max_values)?,
            encode_named: plan.getattr("encode_named")?.extract()?,
            decode_named: coding.getattr("decode_named")?.extract()?,
            accepts: plan.getattr("accepts")?.extract()?,
            check_at: plan.getattr("check_at")?.unbind(),
            bind: plan.getattr("bind")?.unbind(),
        })
    }

    /// Checks values given in order, one per parameter.
    #[inline]
    pub(crate) fn check(&self, values: &Bound<'_, PyTuple>) -> PyResult<()> {
        for (index, accepts) in self.accepts.iter().enumerate() {
            let value = values.get_borrowed_item(index)?;
            if !accepts.has(&value) {
                self.check_at.bind(values.py()).run_with((index, value))?;
            }
        }
        Ok(())
    }
}

/// Whether calls go one way, and which side streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unary,
    ServerStream,
    ClientStream,
    BidiStream,
    Oneway,
}

impl Kind {
    pub(crate) fn client_streams(self) -> bool {
        matches!(self, Self::ClientStream | Self::BidiStream)
    }

    pub(crate) fn server_streams(self) -> bool {
        matches!(self, Self::ServerStream | Self::BidiStream)
    }
}

/// A method, as the core uses it: everything a call needs, taken from a `MethodPlan` once.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Method {
    /// What it was taken from: the rest is for people who ask.
    plan: Py<PyAny>,
    /// `"Service.method"`.
    #[pyo3(get)]
    pub(crate) name: String,
    /// The method's number on the wire, for calls to a server and for calls of objects.
    pub(crate) number: u16,
    pub(crate) kind: Kind,
    pub(crate) arguments: Arguments,
    pub(crate) request_item: Option<Value>,
    pub(crate) stream_position: usize,
    pub(crate) reply: Value,
    pub(crate) in_loop: bool,
    pub(crate) always_named: bool,
    pub(crate) idempotent: bool,
    /// The path by which gRPC calls the method, if it can.
    pub(crate) path: Option<MethodPath>,
    /// A client's own `make_error`, if the service declares exceptions.
    make_error: Option<Py<PyAny>>,
    /// A server's own `describe_error`, if the service declares exceptions or the server sends tracebacks.
    pub(crate) describe_error: Option<Py<PyAny>>,
    /// For a client: the Python object that gives the method its successors lives as long as the method.
    keeps: Option<Py<PyAny>>,
    /// Whether there is a successor. While there is none, looking for one takes no lock.
    succeeded: AtomicBool,
    successor: Mutex<Option<Py<Self>>>,
}

#[pymethods]
impl Method {
    #[new]
    #[pyo3(signature = (plan, *, max_values, number=0, make_error=None, describe_error=None, keeps=None))]
    fn new(
        plan: &Bound<'_, PyAny>,
        max_values: usize,
        number: u16,
        make_error: Option<Py<PyAny>>,
        describe_error: Option<Py<PyAny>>,
        keeps: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let kind = match plan.getattr("kind")?.cast::<PyString>()?.to_str()? {
            "unary" => Kind::Unary,
            "server_stream" => Kind::ServerStream,
            "client_stream" => Kind::ClientStream,
            "bidi_stream" => Kind::BidiStream,
            "oneway" => Kind::Oneway,
            other => return Err(PyValueError::new_err(format!("{other:?} is no kind of method"))),
        };
        let request_item: Option<Bound<'_, PyAny>> = plan.getattr("request_item")?.extract()?;
        let position: isize = plan.getattr("stream_position")?.extract()?;
        let name: String = plan.getattr("full_name")?.extract()?;
        let path: Option<String> = plan.getattr("path")?.extract()?;
        let (streams_in, streams_out) = (kind.client_streams(), kind.server_streams());
        let is_safe = plan.getattr("no_side_effects")?.extract()?;
        Ok(Self {
            plan: plan.clone().unbind(),
            number,
            kind,
            request_item: request_item.map(|item| Value::read(&item, &name, max_values)).transpose()?,
            stream_position: usize::try_from(position).unwrap_or(0),
            reply: Value::read(&plan.getattr("reply")?, &name, max_values)?,
            arguments: Arguments::read(&plan.getattr("arguments")?, &name, max_values)?,
            name,
            in_loop: plan.getattr("handler_is_async")?.extract()?,
            always_named: plan.getattr("always_named")?.extract()?,
            idempotent: plan.getattr("idempotent")?.extract()?,
            path: path.map(|path| MethodPath { path, streams_in, streams_out, is_safe }),
            make_error,
            describe_error,
            keeps,
            succeeded: AtomicBool::new(false),
            successor: Mutex::default(),
        })
    }

    /// Makes later calls use `successor`: the same method, as agreed on with the next server.
    fn succeed(&self, successor: Py<Self>) {
        let earlier = self.successor.lock().replace(successor);
        // Relaxed: the interpreter is held here and in `successor`, and the new connection is stored later.
        self.succeeded.store(true, Ordering::Relaxed);
        drop(earlier);
    }

    /// `"/package.Service/Method"`, if it is called over gRPC.
    #[getter]
    fn path(&self) -> Option<&str> {
        self.path.as_ref().map(|path| path.path.as_str())
    }

    fn __repr__(&self) -> String {
        format!("<nearcall method {}>", self.name)
    }

    // No `__clear__`: the objects here belong to Python, which clears them.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.plan)?;
        visit.call(&self.keeps)
    }
}

/// What knows how a method is shown; few ask.
fn outward(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("nearcall.service.outward")
}

impl Method {
    /// The signature by which callers see the method.
    pub(crate) fn signature<'py>(&self, py: Python<'py>, for_loop: bool) -> PyResult<Bound<'py, PyAny>> {
        outward(py)?.getattr("called_as")?.run_with((&self.plan, for_loop))
    }

    /// The docstring of the method.
    pub(crate) fn doc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        outward(py)?.getattr("text_of")?.run([self.plan.bind(py)])
    }

    /// The method that has taken this one's place, if any. To be asked after the connection was chosen: then the result
    /// fits that connection, or a later one; in the second case nothing can be sent on the chosen connection any more.
    #[inline]
    pub(crate) fn successor(&self, py: Python<'_>) -> Option<Py<Self>> {
        // Relaxed: see `succeed`; the successor itself is behind its lock.
        if !self.succeeded.load(Ordering::Relaxed) {
            return None;
        }
        self.successor.lock().as_ref().map(|successor| successor.clone_ref(py))
    }

    /// The exception for a failed call of the method, which may be an exception of the application.
    pub(crate) fn raise(&self, py: Python<'_>, failure: &Failure, trailing: Option<&Metadata>) -> PyErr {
        raise_for_call(py, self.make_error.as_ref(), failure, trailing)
    }

    /// The exception that the last attempt at a call has failed with.
    pub(crate) fn raise_again(&self, py: Python<'_>, again: &Again) -> PyErr {
        self.raise(py, &again.failure, again.trailing.as_ref())
    }

    /// What the core must know to route frames of the method.
    pub(crate) fn routing(&self) -> MethodRouting {
        MethodRouting {
            handler: if self.in_loop { HandlerKind::EventLoop } else { HandlerKind::Thread },
            streams: self.kind.client_streams() || self.kind.server_streams(),
            references: self.arguments.references(),
            item_references: self.request_item.as_ref().is_some_and(Value::references),
        }
    }
}

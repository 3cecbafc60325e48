//! Python values become payloads and back.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::Arc;

use nearcall_core::server::ValueBudget;
use nearcall_core::{Failure, Incoming, Payload, REFERENCE_VALUES, holds_more_than, sizes, weigh};
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyTuple};
use smallvec::SmallVec;

use crate::gil::callback::Callback;
use crate::gil::errors::raise;
use crate::gil::interpreter::detach;
use crate::values::encoded::{Buffers, Encoded, LONG, LentBuffer, Main};
use crate::values::encoder::Decoder;
use crate::values::plan::{Arguments, Coding, Form, Method, Value};
use crate::values::protobuf::Excess;
use crate::values::view::View;

impl Value {
    /// Encodes a result or an item, after checking that it fits.
    pub(crate) fn encode<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Encoded<'py>> {
        let py = value.py();
        if !self.accepts.has(&value)
            && let Some(check) = &self.check
        {
            check.bind(py).run([&value])?;
        }
        if self.form.is_buffer() {
            let taken = LentBuffer::take(value).map_err(|error| explain(py, &self.coding.encode_error, error, &[]));
            return taken.map(Main::Lent).map(Encoded::whole);
        }
        let encoded = match self.form {
            Form::Nothing => return Ok(Encoded::empty()),
            Form::Parts => self.coding.encode_parts(&value, SmallVec::new()),
            _ => self.coding.encode_main(&value).map(Encoded::whole),
        };
        encoded.map_err(|error| explain(py, &self.coding.encode_error, error, &[]))
    }

    /// Decodes a result or an item. A client's item has a `budget` for its values.
    pub(crate) fn decode(
        &self,
        py: Python<'_>,
        event: &mut Incoming,
        budget: Option<ValueBudget<'_>>,
    ) -> PyResult<Py<PyAny>> {
        match self.form {
            Form::Nothing => Ok(py.None()),
            Form::Coded | Form::Parts => {
                self.coding.decode(py, self.form == Form::Parts, event, budget).map(Bound::unbind)
            }
            form => buffer(py, form, &mut event.payload),
        }
    }
}

/// Calls a function of the codec with an error, and what beside it.
fn tell<'py>(
    function: &Bound<'py, PyAny>,
    error: &PyErr,
    beside: &[&Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let error = error.clone_ref(py).into_value(py).into_bound(py).into_any();
    let arguments: SmallVec<[_; 3]> = std::iter::once(&error).chain(beside.iter().copied()).cloned().collect();
    function.run_many(&arguments, None)
}

/// Asks Python for the exception that explains an error of the codec, with its traceback. `beside`: in what the fault is looked
/// for. What is to end the program stays as it is, such as a Ctrl-C that came while a class of the user's was made.
#[cold]
fn explain<'py>(py: Python<'py>, explainer: &Py<PyAny>, error: PyErr, beside: &[&Bound<'py, PyAny>]) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    tell(explainer.bind(py), &error, beside).map_or(error, PyErr::from_value)
}

/// What a codec gives for what it has refused, if it has another way: one that takes longer and can more.
#[cold]
fn again<'py>(
    py: Python<'py>,
    other: Option<&Py<PyAny>>,
    error: PyErr,
    given: &[&Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    match other {
        Some(other) if error.is_instance_of::<PyException>(py) => tell(other.bind(py), &error, given),
        _ => Err(error),
    }
}

/// The whole payload as the buffer type that a form names.
pub(crate) fn buffer(py: Python<'_>, form: Form, payload: &mut Payload) -> PyResult<Py<PyAny>> {
    let len = payload.len();
    Ok(match form {
        Form::Bytearray => bytearray(py, payload, 0, len)?.into_any().unbind(),
        Form::Memoryview => View::of(py, &Arc::new(payload.take()), 0, len)?.into_any().unbind(),
        _ => bytes(py, payload, 0, len)?.into_any().unbind(),
    })
}

#[inline]
pub(crate) fn bytes<'py>(
    py: Python<'py>,
    payload: &Payload,
    offset: usize,
    len: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    if len < LONG
        && let Some(inline) = payload.inline()
    {
        return Ok(PyBytes::new(py, &inline[offset..offset + len]));
    }
    Ok(filled(py, payload, offset, len, ffi::PyBytes_FromStringAndSize, ffi::PyBytes_AsString)?.cast_into()?)
}

fn bytearray<'py>(py: Python<'py>, payload: &Payload, offset: usize, len: usize) -> PyResult<Bound<'py, PyByteArray>> {
    let filled = filled(py, payload, offset, len, ffi::PyByteArray_FromStringAndSize, ffi::PyByteArray_AsString);
    Ok(filled?.cast_into()?)
}

/// A Python object with `len` bytes of the payload. `make` and `start` are Python's functions for the type of the
/// object.
fn filled<'py>(
    py: Python<'py>,
    payload: &Payload,
    offset: usize,
    len: usize,
    make: unsafe extern "C" fn(*const c_char, isize) -> *mut ffi::PyObject,
    start: unsafe extern "C" fn(*mut ffi::PyObject) -> *mut c_char,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: without a source, Python makes an object of that many bytes, which this function fills.
    let made = unsafe { make(null(), len as isize) };
    // SAFETY: a new reference, or null with an exception set.
    let object = fitting(py, len, unsafe { Bound::from_owned_ptr_or_err(py, made) })?;
    // SAFETY: an object of the type that the function is for.
    let start = unsafe { start(object.as_ptr()) };
    // SAFETY: the object has that many bytes, and no other code has seen it yet.
    let into = unsafe { std::slice::from_raw_parts_mut(start.cast::<MaybeUninit<u8>>(), len) };
    if len < LONG {
        payload.copy(offset, into);
    } else {
        detach(py, || payload.copy(offset, into));
    }
    Ok(object)
}

/// If there is no memory for a received message, the call fails with `RESOURCE_EXHAUSTED`.
fn fitting<'py>(py: Python<'py>, len: usize, made: PyResult<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    made.map_err(|error| {
        if !error.is_instance_of::<PyMemoryError>(py) {
            return error;
        }
        let message =
            format!("there is no memory for a message of {len} bytes; lower max_message_size at its receiver");
        raise(py, &Failure::new(Failure::RESOURCE_EXHAUSTED, message))
    })
}

/// Looks at a message of `len` bytes; without the interpreter if that takes more than to release it and take it again.
#[inline]
fn aside<R: Send>(py: Python<'_>, len: usize, look: impl FnOnce() -> R + Send) -> R {
    if len < LOOKED_AT_ASIDE { look() } else { detach(py, look) }
}

/// Looking at so many bytes takes 0.2 ms if each is a value.
const LOOKED_AT_ASIDE: usize = 64 << 10;

impl Coding {
    /// The msgpack bytes of a payload, checked: they hold no more values than are allowed, and no keys that collide. What
    /// the values will take is charged to the `budget`.
    #[inline]
    fn body<'py>(
        &self,
        py: Python<'py>,
        payload: &Payload,
        len: usize,
        budget: Option<ValueBudget<'_>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let body = bytes(py, payload, 0, len)?;
        let encoded = body.as_bytes();
        if let Some(budget) = budget.filter(|budget| budget.counts(len)) {
            let weight =
                aside(py, len, || weigh(encoded, self.max_values, &self.weights)).ok_or_else(|| self.exceeded(py))?;
            if !budget.add(weight.bytes) {
                return Err(self.too_much_memory(py));
            }
        } else if self.may_exceed(len) && aside(py, len, || holds_more_than(encoded, self.max_values)) {
            return Err(self.exceeded(py));
        }
        if let Some(hashed) = &self.hashed {
            hashed.check(&body).map_err(|error| explain(py, &self.decode_error, error, &[]))?;
        }
        Ok(body)
    }

    /// The payload of a value that has no buffers beside it.
    #[inline]
    fn encode_main<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Main<'py>> {
        self.encode.main(value).or_else(|error| {
            let encoded = again(value.py(), self.encode_again.as_ref(), error, &[value])?;
            Ok(Main::Lent(LentBuffer::Bytes(encoded.cast_into()?)))
        })
    }

    /// The payload of a value that may have buffers beside it, which come after the `first`.
    #[inline]
    fn encode_parts<'py>(&self, value: &Bound<'py, PyAny>, first: Buffers<'py>) -> PyResult<Encoded<'py>> {
        let encoded =
            self.encode.run(value).or_else(|error| again(value.py(), self.encode_again.as_ref(), error, &[value]))?;
        Encoded::parts(&encoded, first)
    }

    /// What msgpack's function makes of a body, and of the buffers beside it if there may be some.
    #[inline]
    fn decode_msgpack<'py, const N: usize>(
        &self,
        function: &Bound<'py, PyAny>,
        given: [&Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        let decoded = function.run(given).or_else(|error| again(py, self.decode_again.as_ref(), error, &given));
        decoded.map_err(|error| explain(py, &self.decode_error, error, &given))
    }

    /// Decodes a message, which has buffers beside it if it comes in `parts`.
    #[inline]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        parts: bool,
        event: &mut Incoming,
        budget: Option<ValueBudget<'_>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if parts {
            let (body, buffers) = self.divide(py, event, budget)?;
            return self.decode_msgpack(self.decode.function(py)?, [body.as_any(), buffers.as_any()]);
        }
        let (payload, len) = (&event.payload, event.payload.len());
        let decoded = match &self.decode {
            Decoder::Msgpack(decode) => {
                let body = self.body(py, payload, len, budget)?;
                return self.decode_msgpack(decode.bind(py), [body.as_any()]);
            }
            Decoder::Opaque(decode) => {
                if len > self.max_values {
                    return Err(self.exceeded_by_bytes(py, len));
                }
                let budget = budget.filter(|budget| budget.counts(len));
                if budget.is_some_and(|budget| !budget.add(len.saturating_mul(sizes::LIST))) {
                    return Err(self.too_much_memory(py));
                }
                decode.bind(py).run([bytes(py, payload, 0, len)?.as_any()])
            }
            Decoder::Protobuf(codec) => {
                let budget = budget.filter(|budget| budget.counts(len));
                let decode = |body: &[u8]| codec.get().decode_within(py, body, self.max_values, budget);
                let decoded = match payload.inline() {
                    Some(inline) => decode(inline),
                    None => decode(bytes(py, payload, 0, len)?.as_bytes()),
                };
                match decoded {
                    Ok(Err(Excess::Values)) => Err(self.exceeded(py)),
                    Ok(Err(Excess::Memory)) => Err(self.too_much_memory(py)),
                    Ok(Ok(value)) => Ok(value),
                    Err(error) => Err(error),
                }
            }
        };
        decoded.map_err(|error| explain(py, &self.decode_error, error, &[]))
    }

    /// Whether a message of this length can hold too many values: every value takes at least one byte, and a reference
    /// twelve.
    #[inline]
    fn may_exceed(&self, len: usize) -> bool {
        let most_in_a_byte = if self.references { REFERENCE_VALUES.div_ceil(12) } else { 1 };
        len.saturating_mul(most_in_a_byte) > self.max_values
    }

    #[cold]
    fn exceeded(&self, py: Python<'_>) -> PyErr {
        let message = format!(
            "{}: the message holds more than {} values; send less in one, send an array or bytes, or raise max_values at \
             its receiver",
            self.method, self.max_values
        );
        raise(py, &Failure::new(Failure::RESOURCE_EXHAUSTED, message))
    }

    #[cold]
    fn exceeded_by_bytes(&self, py: Python<'_>, len: usize) -> PyErr {
        let message = format!(
            "{}: the message has {len} bytes, each of which may be a value in this codec, and {} are allowed; send less in \
             one, use msgpack, or raise max_values at its receiver",
            self.method, self.max_values
        );
        raise(py, &Failure::new(Failure::RESOURCE_EXHAUSTED, message))
    }

    #[cold]
    fn too_much_memory(&self, py: Python<'_>) -> PyErr {
        let message = format!(
            "{}: the values in this message, with those of other calls under way, take more memory than this client may \
             use; make fewer such calls at once, send an array or bytes, or raise max_memory at the server",
            self.method
        );
        raise(py, &Failure::new(Failure::RESOURCE_EXHAUSTED, message))
    }

    /// Splits a payload into checked msgpack bytes and views of the buffers beside them.
    fn divide<'py>(
        &self,
        py: Python<'py>,
        event: &mut Incoming,
        budget: Option<ValueBudget<'_>>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyList>)> {
        let (body, ranges) = ranges(py, event)?;
        let body = self.body(py, &event.payload, body, budget)?;
        Ok((body, views(py, &Arc::new(event.take_payload()), &ranges)?))
    }
}

/// Views of parts of a payload.
fn views<'py>(py: Python<'py>, payload: &Arc<Payload>, ranges: &[(usize, usize)]) -> PyResult<Bound<'py, PyList>> {
    let views = PyList::empty(py);
    for &(offset, len) in ranges {
        views.append(View::of(py, payload, offset, len)?)?;
    }
    Ok(views)
}

/// The length of the body, and offset and length of each buffer.
fn ranges(py: Python<'_>, event: &Incoming) -> PyResult<(usize, Vec<(usize, usize)>)> {
    match event.head.extras().and_then(|extras| extras.parts.as_ref()) {
        None => Ok((event.payload.len(), Vec::new())),
        Some(table) => table.ranges(event.payload.len()).map_err(|malformed| raise(py, &Failure::from(malformed))),
    }
}

impl Method {
    /// Binds and encodes the arguments of a call.
    #[inline]
    pub(crate) fn encode_call<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Encoded<'py>> {
        let arguments = &self.arguments;
        let count = arguments.forms.len();
        if args.len() == count
            && count <= arguments.positional
            && kwargs.is_none_or(PyDictMethods::is_empty)
            && !self.always_named
        {
            arguments.check(args)?;
            return arguments.encode(args);
        }
        let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(args.py()));
        let bound = arguments.bind.bind(args.py()).run([args.as_any(), kwargs.as_any()])?;
        self.encode_bound(&bound)
    }

    /// Encodes arguments that `bind` or `split` has sorted: a tuple of all, or a dict of those given. Every call that
    /// does not take the fast path of `encode_call` comes here, so only this function decides how its arguments travel.
    pub(crate) fn encode_bound<'py>(&self, bound: &Bound<'py, PyAny>) -> PyResult<Encoded<'py>> {
        let arguments = &self.arguments;
        if !self.always_named
            && let Ok(values) = bound.cast::<PyTuple>()
        {
            arguments.check(values)?;
            return arguments.encode(values);
        }
        let py = bound.py();
        let explain = |error| arguments.explain(py, bound, error);
        let Some(encode_named) = &arguments.encode_named else {
            return arguments.coding.encode.main(bound).map(Encoded::whole).map_err(explain);
        };
        let encoded = encode_named.bind(py).run([bound]).map_err(explain)?;
        let mut encoded = Encoded::parts(&encoded, SmallVec::new())?;
        encoded.named = true;
        Ok(encoded)
    }
}

impl Arguments {
    fn explain<'py>(&self, py: Python<'py>, values: &Bound<'py, PyAny>, error: PyErr) -> PyErr {
        explain(py, &self.coding.encode_error, error, &[values])
    }

    #[inline]
    fn encode<'py>(&self, values: &Bound<'py, PyTuple>) -> PyResult<Encoded<'py>> {
        let py = values.py();
        if self.forms.is_empty() && self.coding.encode.has_empty() {
            return Ok(Encoded::empty());
        }
        if self.all_coded {
            return self.coded(values, None);
        }
        if self.forms.len() == 1 {
            let taken = LentBuffer::take(values.get_item(0)?).map_err(|error| self.explain(py, values, error));
            return taken.map(Main::Lent).map(Encoded::whole);
        }
        let mut buffers = Buffers::new();
        let mut coded: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
        for (form, value) in self.forms.iter().zip(values) {
            if form.is_buffer() {
                buffers.push(LentBuffer::take(value).map_err(|error| self.explain(py, values, error))?);
            } else {
                coded.push(value);
            }
        }
        if coded.is_empty() {
            return Ok(Encoded { buffers: Some(buffers), ..Encoded::empty() });
        }
        let coded = PyTuple::new(py, coded)?;
        self.coded(&coded, Some(buffers))
    }

    /// The payload of the arguments that the codec encodes. The arguments that are buffers go beside it, ahead of the
    /// codec's own buffers.
    #[inline]
    fn coded<'py>(&self, values: &Bound<'py, PyTuple>, buffers: Option<Buffers<'py>>) -> PyResult<Encoded<'py>> {
        let encoded = if self.parts {
            self.coding.encode_parts(values.as_any(), buffers.unwrap_or_default())
        } else {
            self.coding.encode_main(values.as_any()).map(|main| Encoded { buffers, ..Encoded::whole(main) })
        };
        encoded.map_err(|error| self.explain(values.py(), values, error))
    }

    /// The form of the only argument, if that is a buffer: then the payload is the buffer itself.
    #[inline]
    pub(crate) fn single_buffer(&self) -> Option<Form> {
        match self.forms[..] {
            [form] if form.is_buffer() => Some(form),
            _ => None,
        }
    }

    /// Decodes the arguments of a received call, every parameter in order. What they take as values is charged to the
    /// `budget`.
    pub(crate) fn decode<'py>(
        &self,
        py: Python<'py>,
        event: &mut Incoming,
        named: bool,
        budget: ValueBudget<'_>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let budget = Some(budget);
        if named {
            let Some(decode_named) = &self.decode_named else {
                let message = format!("{}: arguments do not come by name in this codec", self.coding.method);
                return Err(raise(py, &Failure::new(Failure::INVALID_ARGUMENT, message)));
            };
            let (body, buffers) = self.coding.divide(py, event, budget)?;
            let given = [body.as_any(), buffers.as_any()];
            let decoded = decode_named.bind(py).run(given);
            let decoded = decoded.map_err(|error| explain(py, &self.coding.decode_error, error, &given))?;
            return Ok(decoded.cast_into::<PyTuple>()?);
        }
        if self.forms.is_empty() && self.coding.encode.has_empty() {
            return Ok(PyTuple::empty(py));
        }
        if self.all_coded {
            let decoded = self.coding.decode(py, self.parts, event, budget)?;
            return Ok(decoded.cast_into::<PyTuple>()?);
        }
        if let [form] = self.forms[..] {
            return PyTuple::new(py, [buffer(py, form, &mut event.payload)?]);
        }
        self.decode_mixed(py, event, budget)
    }

    fn decode_mixed<'py>(
        &self,
        py: Python<'py>,
        event: &mut Incoming,
        budget: Option<ValueBudget<'_>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (body, ranges) = ranges(py, event)?;
        let body = self.coding.body(py, &event.payload, body, budget)?;
        let direct = self.forms.iter().filter(|form| form.is_buffer()).count();
        if ranges.len() < direct {
            let message = "the call's arguments lack a buffer; do client and server have the same service?";
            return Err(raise(py, &Failure::new(Failure::INVALID_ARGUMENT, message)));
        }
        let payload = Arc::new(event.take_payload());
        let mut coded = if direct == self.forms.len() {
            None
        } else {
            let decoded = if self.parts {
                let views = views(py, &payload, &ranges[direct..])?;
                self.coding.decode_msgpack(self.coding.decode.function(py)?, [body.as_any(), views.as_any()])
            } else {
                self.coding.decode_msgpack(self.coding.decode.function(py)?, [body.as_any()])
            };
            Some(decoded?.cast_into::<PyTuple>()?.into_iter())
        };
        let mut direct = ranges.into_iter();
        let mut values: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
        for form in &self.forms {
            let value = if form.is_buffer() {
                let (offset, len) = direct.next().expect("counted above");
                match form {
                    Form::Bytearray => bytearray(py, &payload, offset, len)?.into_any(),
                    Form::Memoryview => View::of(py, &payload, offset, len)?.into_any(),
                    _ => bytes(py, &payload, offset, len)?.into_any(),
                }
            } else {
                let next = coded.as_mut().and_then(Iterator::next);
                next.ok_or_else(|| raise(py, &Failure::new(Failure::INVALID_ARGUMENT, "the call lacks arguments")))?
            };
            values.push(value);
        }
        PyTuple::new(py, values)
    }
}

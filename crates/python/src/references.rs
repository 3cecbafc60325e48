//! Objects that cross a connection by reference: what was given is called over the same connection, either way.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};

use nearcall_core::client::Connection as Core;
use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, Incoming, Methods, Object, given_in, left_over};
use pyo3::prelude::*;

use crate::aio::AsyncUnary;
use crate::callback::Callback;
use crate::calling::{Calling, Limits, Way};
use crate::deadline::Surroundings;
use crate::encoded::Encoded;
use crate::errors::raise;
use crate::interpreter::detached;
use crate::oneway::Oneway;
use crate::opening::begin_stream;
use crate::plan::Method;
use crate::served::Served;
use crate::stream::Stream;
use crate::unary::Unary;

/// What runs the calls of objects of one class.
#[pyclass(frozen, subclass, module = "nearcall._core")]
pub(crate) struct ServedObject {
    by_number: HashMap<u16, Served>,
    methods: Arc<Methods>,
}

#[pymethods]
impl ServedObject {
    /// Each method stands under its own number. What it comes with is called with the object, then every parameter by
    /// position.
    #[new]
    fn new(methods: Vec<(Py<Method>, Py<PyAny>)>) -> Self {
        let kinds: Vec<_> = methods.iter().map(|(method, _)| method.get()).collect();
        let kinds: Vec<_> = kinds.iter().map(|method| (method.number, method.routing())).collect();
        let served =
            |(method, handler): (Py<Method>, _)| (method.get().number, Served { method, handler: Some(handler) });
        Self { by_number: methods.into_iter().map(served).collect(), methods: Arc::new(Methods::new(&kinds)) }
    }
}

impl ServedObject {
    /// The method of that number, which the core has found.
    pub(crate) fn method(&self, number: u16) -> &Served {
        &self.by_number[&number]
    }
}

/// An object as it is given: itself, and what runs its calls.
pub(crate) struct Given {
    pub(crate) object: Py<PyAny>,
    pub(crate) served: Py<ServedObject>,
}

impl Given {
    /// What the core keeps is what was given to it.
    pub(crate) fn of(object: &(dyn Any + Send + Sync)) -> Option<&Self> {
        object.downcast_ref()
    }

    /// Takes it out of what the core has kept.
    pub(crate) fn taken(object: Object) -> Option<Self> {
        object.downcast().ok().map(|given| *given)
    }
}

/// What the binding keeps with a connection, or with the half of one that calls.
pub(crate) struct Attached {
    /// Who is at the other end.
    name: String,
    /// How calls of the other side's objects are made: by this, for no object yet.
    calling: Calling,
    /// Python's own.
    held: Mutex<Option<Py<PyAny>>>,
}

/// A connection as a reference knows it.
#[derive(Clone)]
pub(crate) enum Hold {
    /// A client's: it lives as long as anything needs it.
    Client(Arc<Core>),
    /// A server's: it ends when the client goes, whatever a handler keeps.
    Server(Weak<Core>),
}

impl Hold {
    pub(crate) fn core(&self) -> Option<Arc<Core>> {
        match self {
            Self::Client(core) => Some(Arc::clone(core)),
            Self::Server(core) => core.upgrade(),
        }
    }
}

/// The object at the other end of a connection that calls are made of.
pub(crate) struct Target {
    pub(crate) hold: Hold,
    pub(crate) id: NonZeroU64,
    attached: Arc<Attached>,
    /// Python's own, which lets go of the object when it goes: not while anything calls it.
    _keeps: Py<PyAny>,
}

impl Target {
    /// Who has the object, in messages.
    pub(crate) fn place(&self) -> &str {
        &self.attached.name
    }

    /// The failure of a call when the connection is gone.
    pub(crate) fn gone(&self) -> Failure {
        gone(&self.attached.name)
    }
}

fn gone(name: &str) -> Failure {
    let text = format!("the connection to {name} is gone, and the objects that came over it with it: ask for new ones");
    Failure::new(Failure::UNAVAILABLE, text)
}

/// What crosses on which connection, while a value is encoded or decoded.
struct Crossing {
    hold: Hold,
    attached: Arc<Attached>,
    /// What was given meanwhile.
    given: Vec<NonZeroU64>,
    /// What was taken out meanwhile of what the other side gave.
    taken: Vec<NonZeroU64>,
}

thread_local! {
    /// Of the value that this thread encodes or decodes.
    static CROSSING: RefCell<Option<Crossing>> = const { RefCell::new(None) };
}

/// Restores what was there before.
struct Restore(Option<Crossing>);

impl Restore {
    fn leave(mut self) -> Option<Crossing> {
        let before = self.0.take();
        let crossing = CROSSING.replace(before);
        std::mem::forget(self);
        crossing
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // After a panic.
        CROSSING.set(self.0.take());
    }
}

fn enter(core: &Arc<Core>, calling: &Calling) -> Restore {
    let attached = attached(core, calling);
    let hold = if calling.serves { Hold::Server(Arc::downgrade(core)) } else { Hold::Client(Arc::clone(core)) };
    Restore(CROSSING.replace(Some(Crossing { hold, attached, given: Vec::new(), taken: Vec::new() })))
}

fn attached(core: &Arc<Core>, calling: &Calling) -> Arc<Attached> {
    let make = || -> Box<dyn Any + Send + Sync> {
        // The channel keeps its connection, which keeps this: neither would ever end.
        // Nor has the time limit of the method that was called first anything to do with the objects that come after it.
        let limits = Limits { own: None, ..calling.limits };
        let mut calling = Calling { way: Way::Nowhere, limits, ..calling.clone() };
        if calling.waiting.is_threads()
            && let Some(of_callbacks) = calling.of_callbacks.lock().clone()
        {
            // Coroutines that call the other side's objects are those of the server that receives here.
            calling.waiting = of_callbacks;
        }
        Box::new(Arc::new(Attached { name: core.name().to_owned(), calling, held: Mutex::default() }))
    };
    let attached = core.attached(make).downcast_ref::<Arc<Attached>>();
    Arc::clone(attached.expect("nothing else is attached to connections"))
}

/// Objects that were given with a message which is not sent yet.
pub(crate) struct Unsent {
    core: Arc<Core>,
    given: Vec<NonZeroU64>,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.core.take_back(&self.given);
    }
}

impl Unsent {
    /// The message is sent: the other side has them.
    pub(crate) fn sent(mut self) {
        self.given.clear();
    }
}

/// Encodes what may hold references for a connection. What is given is taken back unless the message is sent.
#[inline]
pub(crate) fn encoding<'py>(
    references: bool,
    core: &Arc<Core>,
    calling: &Calling,
    encode: impl FnOnce() -> PyResult<Encoded<'py>>,
) -> PyResult<Encoded<'py>> {
    if references { encode_crossing(core, calling, encode) } else { encode() }
}

fn encode_crossing<'py>(
    core: &Arc<Core>,
    calling: &Calling,
    encode: impl FnOnce() -> PyResult<Encoded<'py>>,
) -> PyResult<Encoded<'py>> {
    let entered = enter(core, calling);
    let encoded = encode();
    let given = entered.leave().map_or_else(Vec::new, |crossing| crossing.given);
    let unsent = (!given.is_empty()).then(|| Box::new(Unsent { core: Arc::clone(core), given }));
    let mut encoded = encoded?;
    encoded.unsent = unsent;
    Ok(encoded)
}

/// Decodes what may hold references that came over a connection. Those that the decoder did not come to, or passed over, are
/// let go of.
#[inline]
pub(crate) fn decoding<R>(
    references: bool,
    core: &Arc<Core>,
    calling: &Calling,
    event: &mut Incoming,
    decode: impl FnOnce(&mut Incoming) -> PyResult<R>,
) -> PyResult<R> {
    if references { decode_crossing(core, calling, event, decode) } else { decode(event) }
}

fn decode_crossing<R>(
    core: &Arc<Core>,
    calling: &Calling,
    event: &mut Incoming,
    decode: impl FnOnce(&mut Incoming) -> PyResult<R>,
) -> PyResult<R> {
    let given = given_in(&event.head, &event.payload);
    let entered = enter(core, calling);
    let decoded = decode(event);
    let taken = entered.leave().map_or_else(Vec::new, |crossing| crossing.taken);
    let left = left_over(&given, &taken);
    if !left.is_empty() {
        // There may be many.
        detached(&mut || core.release_given(&left));
    }
    decoded
}

/// The connection whose value the calling thread encodes or decodes just now, if that may hold references.
#[pyfunction]
pub(crate) fn current_references() -> Option<References> {
    CROSSING.with_borrow(|crossing| {
        crossing
            .as_ref()
            .map(|crossing| References { hold: crossing.hold.clone(), attached: Arc::clone(&crossing.attached) })
    })
}

/// The objects that cross one connection by reference, both ways.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct References {
    hold: Hold,
    attached: Arc<Attached>,
}

#[pymethods]
impl References {
    /// Counts one more of an own object that is about to be sent, and keeps it until the other side has let go of it. Its
    /// number there.
    fn give(&self, py: Python<'_>, object: Py<PyAny>, served: Py<ServedObject>) -> PyResult<u64> {
        let core = self.core(py)?;
        let identity = (object.as_ptr().addr(), served.as_ptr().addr());
        let methods = Arc::clone(&served.get().methods);
        let id = core.give(identity, &methods, || Box::new(Given { object, served }));
        let id = id.map_err(|failure| raise(py, &failure))?;
        CROSSING.with_borrow_mut(|crossing| {
            if let Some(crossing) = crossing.as_mut().filter(|crossing| Arc::ptr_eq(&crossing.attached, &self.attached))
            {
                crossing.given.push(id);
            }
        });
        Ok(id.get())
    }

    /// Notes that a reference was taken out of the message that is decoded: whoever did so lets go of it.
    fn take(&self, id: u64) {
        CROSSING.with_borrow_mut(|crossing| {
            if let Some(crossing) = crossing.as_mut().filter(|crossing| Arc::ptr_eq(&crossing.attached, &self.attached))
            {
                crossing.taken.extend(NonZeroU64::new(id));
            }
        });
    }

    /// The own object of that number, which came home.
    fn mine(&self, py: Python<'_>, id: u64) -> PyResult<Py<PyAny>> {
        let export = NonZeroU64::new(id).and_then(|id| self.hold.core()?.given(id));
        if let Some(given) = export.as_ref().and_then(|export| Given::of(export.object())) {
            return Ok(given.object.clone_ref(py));
        }
        let text = format!("{} sent back an object that it was never given", self.attached.name);
        Err(raise(py, &Failure::new(Failure::INVALID_ARGUMENT, text)))
    }

    /// Tells the other side that so many fewer of its object are held here. Never waits, and never fails.
    fn release(&self, id: u64, count: u32) {
        if let Some(core) = self.hold.core()
            && let Some(id) = NonZeroU64::new(id)
            && count > 0
        {
            core.release(id, count);
        }
    }

    /// Whether the connection is there.
    #[getter]
    fn alive(&self) -> bool {
        self.hold.core().is_some_and(|core| !core.is_dead() && core.is_ours())
    }

    /// Where the other side is, or who it is.
    #[getter]
    fn url(&self) -> &str {
        &self.attached.name
    }

    /// What the server at the other end says of itself; empty if that is a client.
    #[getter]
    fn description(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.core(py)?.description().to_owned())
    }

    /// What the owner of the connection keeps with it, made when it is first asked for.
    #[getter]
    fn held(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(held) = this.attached.held.lock().as_ref() {
            return Ok(held.clone_ref(py));
        }
        // Outside the lock: Python runs, and another thread may be as far. The first stays.
        let made = this.attached.calling.make_passage.bind(py).run([slf.as_any()])?.unbind();
        Ok(this.attached.held.lock().get_or_insert_with(|| made.clone_ref(py)).clone_ref(py))
    }

    /// Seconds that a call made now may take; `None` for ever.
    fn time_left(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(Surroundings::look(py, self.attached.calling.limits.of_call())?.left().map(|left| left.as_secs_f64()))
    }

    /// Raises unless the running event loop is the one that the connection was given to.
    fn check_loop(&self, py: Python<'_>) -> PyResult<()> {
        self.attached.calling.waiting.check_loop(py)
    }

    /// To be called by the event loop when it has sent a one-way call.
    fn sent(&self, py: Python<'_>) -> PyResult<()> {
        self.attached.calling.waiting.stirred(py)
    }

    /// A callable for a method without streams of the other side's object of that number. `keeps` lives as long as the
    /// callable and its calls.
    #[pyo3(signature = (method, target, *, keeps))]
    fn unary(&self, py: Python<'_>, method: Py<Method>, target: u64, keeps: Py<PyAny>) -> PyResult<Unary> {
        Ok(Unary::new(self.calling(py, target, keeps)?, method))
    }

    /// A callable for a method of it that sends no reply.
    #[pyo3(signature = (method, target, *, for_loop, keeps))]
    fn oneway(
        &self,
        py: Python<'_>,
        method: Py<Method>,
        target: u64,
        for_loop: bool,
        keeps: Py<PyAny>,
    ) -> PyResult<Oneway> {
        Ok(Oneway::new(self.calling(py, target, keeps)?, method, for_loop))
    }

    /// A callable for a method of it without streams that returns an awaitable.
    #[pyo3(signature = (method, target, *, keeps))]
    fn async_unary(&self, py: Python<'_>, method: Py<Method>, target: u64, keeps: Py<PyAny>) -> PyResult<AsyncUnary> {
        Ok(AsyncUnary::new(self.calling(py, target, keeps)?, method))
    }

    /// Begins a call of it with streams. `arguments` is what the plan's `split` returned.
    #[pyo3(signature = (method, target, arguments, *, for_loop, keeps))]
    fn open(
        &self,
        py: Python<'_>,
        method: &Bound<'_, Method>,
        target: u64,
        arguments: &Bound<'_, PyAny>,
        for_loop: bool,
        keeps: Py<PyAny>,
    ) -> PyResult<Stream> {
        begin_stream(py, &self.calling(py, target, keeps)?, method, arguments, for_loop)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| Arc::ptr_eq(&self.attached, &other.get().attached))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Arc::as_ptr(&self.attached).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<references of the connection to {}>", self.attached.name)
    }
}

impl References {
    fn core(&self, py: Python<'_>) -> PyResult<Arc<Core>> {
        self.hold.core().ok_or_else(|| raise(py, &gone(&self.attached.name)))
    }

    fn calling(&self, py: Python<'_>, target: u64, keeps: Py<PyAny>) -> PyResult<Calling> {
        let unknown = || raise(py, &Failure::new(Failure::INVALID_ARGUMENT, "0 is the number of no object"));
        let id = NonZeroU64::new(target).ok_or_else(unknown)?;
        let target = Target { hold: self.hold.clone(), id, attached: Arc::clone(&self.attached), _keeps: keeps };
        Ok(Calling { way: Way::Object(Arc::new(target)), ..self.attached.calling.clone() })
    }
}

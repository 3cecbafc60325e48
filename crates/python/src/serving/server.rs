//! The server: worker threads that take turns at receiving, and run Python handlers.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use nearcall_core::lock::Mutex;
use nearcall_core::server::{
    Age, AsyncQueue, HandlerKind, Hook, HookRun, ItemOutcome, MOST_SHOWN, MeasuredMethod, MethodRouting, NativeHandler,
    Next, Notice, Request, ServedMethods, Server as Core, Watchable, Work, WorkLimits, Worker,
};
use nearcall_core::{Failure, Object, Options, Origins, Paths};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{IntoPyObjectExt, intern};

use crate::asyncio::waiting::Waiting;
use crate::calls::calling::{Calling, Limits, Way};
use crate::calls::deadline::Inherited;
use crate::calls::when_full::{Policy, WhenFull};
use crate::gil::callback::Callback;
use crate::gil::entered::Entered;
use crate::gil::errors::{no_stream, raise};
use crate::gil::interpreter::{Turns, attach, detach, waiting};
use crate::gil::rest::{Others, rest};
use crate::options::common::{options, seconds};
use crate::options::listeners::Listeners;
use crate::references::objects::{Given, Served};
use crate::serving::context::{Call, Current, OK, is_observed, tell_end};
use crate::serving::handler_turn::HandlerTurn;
use crate::serving::health::HealthMethod;
use crate::serving::introspection::IntrospectionMethod;
use crate::serving::loop_server::InLoop;
use crate::serving::notices::Notices;
use crate::serving::paths::{PathEntry, codec_of};
use crate::serving::request_stream::RequestStream;
use crate::serving::route_handlers::{RouteDispatch, RouteInbox};
use crate::serving::served::{Serving, describe_for, end_late, end_stream, fail, late, too_long, tracked};
use crate::serving::session::Sessions;
use crate::serving::topic::Subscription;
use crate::values::payload::buffer;
use crate::values::plan::Method;

/// A server of some methods, at any number of URLs.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Server {
    of: Arc<Serving>,
    in_loop: Arc<InLoop>,
    notices: Arc<Notices>,
    sessions: Sessions,
    /// Called with each object that no client holds any more.
    on_release: Option<Py<PyAny>>,
}

#[pymethods]
impl Server {
    /// `methods` are pairs of a method and its handler, in the order of `description`. A handler takes every parameter
    /// by position; a method without a handler is called on objects only. Methods for which `measured` has a name and a
    /// kind are measured.
    ///
    /// `make_client` makes the object that belongs to a client, from the client's identity. `on_arrival` is called with
    /// this object before the client's first call, `on_departure` after its last, if the object was made or
    /// `departures` is true. `make_passage` makes the object that is kept with a connection, from the connection's
    /// references.
    ///
    /// `paths` are the paths by which clients name methods over HTTP, for each codec (see [`codec_of`]). `origins` are
    /// the origins of web pages that may call.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    #[pyo3(signature = (methods, description, *, measured, spin, ring_size, max_message_size, handshake_timeout, compression, max_concurrency, max_pending, max_streams, max_memory, max_references, make_client, on_arrival, on_departure, departures, make_passage, on_release=None, paths=HashMap::new(), origins=Vec::new(), max_connection_age=None, max_connection_age_grace=0.0))]
    fn new(
        py: Python<'_>,
        methods: Vec<(Py<Method>, Option<Py<PyAny>>)>,
        description: String,
        measured: Vec<Option<(String, String)>>,
        spin: &Bound<'_, PyAny>,
        ring_size: usize,
        max_message_size: u64,
        handshake_timeout: f64,
        compression: Option<&str>,
        max_concurrency: usize,
        max_pending: usize,
        max_streams: usize,
        max_memory: usize,
        max_references: usize,
        make_client: Py<PyAny>,
        on_arrival: Option<Py<PyAny>>,
        on_departure: Py<PyAny>,
        departures: bool,
        make_passage: Py<PyAny>,
        on_release: Option<Py<PyAny>>,
        paths: HashMap<String, HashMap<String, PathEntry>>,
        origins: Vec<String>,
        max_connection_age: Option<f64>,
        max_connection_age_grace: f64,
    ) -> PyResult<Self> {
        let options = options(spin, ring_size, max_message_size, handshake_timeout, compression);
        let methods: Vec<Served> = methods.into_iter().map(|(method, handler)| Served { method, handler }).collect();
        let (routings, native_handlers) = routings(py, &methods)?;
        let measure = |measured: Option<_>| measured.map(|(name, kind)| MeasuredMethod { name, kind });
        let measured = measured.into_iter().map(measure).collect();
        let mut by_codec = HashMap::new();
        for (name, paths) in paths {
            by_codec.insert(codec_of(&name)?, paths.into_iter().map(|(path, entry)| (path, entry.into())).collect());
        }
        let paths = Paths::new(by_codec);
        let options = Options { origins: Arc::new(Origins::new(origins)), ..options };
        let known = ServedMethods { description, routings, native_handlers, measured, paths };
        let notices = Arc::new(Notices::default());
        let log = Arc::clone(&notices);
        // A thread that only moves bytes must not wait for the interpreter: a worker tells Python later.
        let on_notice = Box::new(move |notice| log.push(notice));
        let grace = seconds(max_connection_age_grace);
        let age = max_connection_age.map(|limit| Age { limit: seconds(limit), grace });
        let limits = WorkLimits { max_concurrency, max_pending, max_streams, max_memory, max_references, age };
        let sessions = Sessions { make: make_client, on_arrival, on_departure, departures };
        let core = Arc::new(Core::new(known, options, limits, sessions.hooks(), on_notice)?);
        let calling = Calling {
            way: Way::Nowhere,
            waiting: Arc::new(Waiting::of_server()),
            limits: Limits::default(),
            wait_for_ready: false,
            when_full: Arc::new(WhenFull::new(Policy::Block, py.None())),
            of_callbacks: Arc::default(),
            serves: true,
            make_passage: Arc::new(make_passage),
            explain: None,
            retries: None,
            copies: None,
        };
        let of = Arc::new(Serving { core, methods, calling });
        Ok(Self { in_loop: Arc::new(InLoop(Arc::clone(&of))), of, notices, sessions, on_release })
    }

    /// Takes in the clients of these listeners, which belong to the server from now on.
    fn listen(&self, py: Python<'_>, listeners: &Bound<'_, Listeners>) -> PyResult<()> {
        let listeners = listeners.get();
        detach(py, || listeners.take().into_iter().try_for_each(|listener| self.of.core.listen(listener)))?;
        Ok(())
    }

    /// Serves on the calling thread until the server stops or needs this thread no more. `spawn` starts another thread
    /// that calls this. `log` is called with messages for the operator: `(serious, text)`. `deserted` is called when
    /// all clients are gone and no new ones can come.
    fn work(
        &self,
        py: Python<'_>,
        spawn: &Bound<'_, PyAny>,
        log: &Bound<'_, PyAny>,
        deserted: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut worker = Worker::new(Arc::clone(&self.of.core));
        let spawn: &Py<PyAny> = spawn.as_unbound();
        let failed = Mutex::new(None);
        let spawn = || {
            attach(|py| match spawn.bind(py).run([]) {
                Ok(_) => true,
                Err(error) => {
                    *failed.lock() = Some(error);
                    false
                }
            })
        };
        let mut others = Others::default();
        loop {
            while let Some(work) = worker.try_next() {
                self.work_on(py, &mut worker, work, &spawn);
            }
            // Before the worker sleeps: messages for the operator may have just arrived.
            self.pass_notices(log, deserted)?;
            if others.let_keep(py)
                && let Some(work) = worker.try_soon()
            {
                self.work_on(py, &mut worker, work, &spawn);
                continue;
            }
            let goes_on = match rest(py, |rest| worker.wait(&|| rest.interrupted(spawn))) {
                Next::Work(work) => {
                    self.work_on(py, &mut worker, work, &spawn);
                    continue;
                }
                Next::Look => true,
                Next::End => false,
            };
            if let Some(error) = failed.lock().take() {
                // Without a spare thread one slow handler holds up the rest; the operator should know why.
                log.run_with((true, format!("cannot start another worker thread: {error}")))?;
            }
            if !goes_on {
                if self.of.core.is_stopped() {
                    // For clients whose last handler was cut off by the end of the server, and has returned only now.
                    while self.end_departure(py) {}
                    self.notices.finish();
                }
                return self.pass_notices(log, deserted);
            }
        }
    }

    /// Stops the server: calls under way may go on for at most `grace` seconds, and no longer once a signal's handler has
    /// raised. Returns whether all have finished. With `in_hook`, a hook of a session or `on_release` calls this, and is not
    /// waited for.
    fn stop(&self, py: Python<'_>, grace: f64, in_hook: bool) -> PyResult<bool> {
        let grace = Duration::try_from_secs_f64(grace).unwrap_or(Duration::MAX);
        waiting(py, |go_on| self.of.core.stop(grace, in_hook, go_on))
    }

    /// Closes all connections, after the workers have returned. The hooks for departed clients and released objects
    /// remain to be run.
    fn close(&self, py: Python<'_>) {
        detach(py, || self.of.core.close());
    }

    /// Runs the hook for one departed client, or for one object that clients have released, if no worker has done that.
    /// Returns whether there was one.
    fn end_departure(&self, py: Python<'_>) -> bool {
        match self.of.core.take_hook() {
            Some(Work::Hook(run)) => self.apart(py, || self.run_hook(py, *run)),
            Some(Work::Call(_)) | None => return false,
        }
        true
    }

    /// Whether all these hooks have run and none runs now, not counting the hook that stops the server.
    fn departures_ended(&self) -> bool {
        self.of.core.has_no_hooks()
    }

    /// The descriptor that the event loop of the coroutine handlers polls for reading.
    fn loop_fileno(&self) -> PyResult<i32> {
        Ok(self.of.core.use_event_loop()?.fd().as_raw_fd())
    }

    /// Sets that event loop: its handlers may call objects of clients.
    fn use_loop(&self, py: Python<'_>, running: Py<PyAny>) {
        self.of.calling.waiting.use_loop_of_server(py, running);
    }

    /// The descriptor that the event loop polls while `next_for_loop` says so.
    fn poll_fileno(&self) -> i32 {
        self.of.core.poll_fd().as_raw_fd()
    }

    /// For that event loop, when the descriptor of `loop_fileno` is readable: the keys of the requests for which
    /// something has changed.
    fn changed(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let queue = self.of.core.use_event_loop()?;
        self.of.core.loop_watch().note_turn();
        let (changed, callers) = queue.take_changed();
        for caller in callers {
            self.of.calling.waiting.deliver(py, &caller)?;
        }
        Ok(changed.iter().map(|call| Arc::as_ptr(call).addr()).collect())
    }

    /// Watches that event loop until it has not turned for `limit` seconds: then calls `held_up` with for how long it has not and
    /// whether it still does not, and, when it turns again, `turned` with for how long it had not; and so on, until `end_watch`. Neither the loop nor its calls wait for this.
    fn watch_loop(
        &self,
        py: Python<'_>,
        limit: f64,
        held_up: &Bound<'_, PyAny>,
        turned: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let limit = seconds(limit);
        let (watch, queue) = (self.of.core.loop_watch(), self.of.core.use_event_loop()?);
        let watched = WatchedLoop { queue, calls: Arc::clone(&self.in_loop) };
        while let Some(since) = rest(py, |_| watch.watch(limit, &watched)) {
            // What holds the loop up may have kept the interpreter as well, until now.
            held_up.run_with((since.elapsed().as_secs_f64(), watch.held().is_some()))?;
            if let Some(time) = rest(py, |_| watch.until_turned(limit / 4)) {
                turned.run_with((time.as_secs_f64(),))?;
            }
        }
        Ok(())
    }

    /// What `nearcall.introspection.Statistics` is made of, for another process that serves together with this one.
    fn statistics(&self) -> PyResult<Vec<u8>> {
        rmp_serde::to_vec_named(&self.of.core.snapshot()).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// What lists of `nearcall.introspection.ConnectionStatistics` are made of: those of the first connections whose
    /// numbers are greater than `after`, as many as are shown at once.
    fn connections(&self, py: Python<'_>, after: u64) -> PyResult<Vec<u8>> {
        let rows = detach(py, || self.of.core.connection_rows(after, MOST_SHOWN));
        rmp_serde::to_vec_named(&rows).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Such a process begins to watch, or ends.
    fn watch_statistics(&self, begins: bool) {
        self.of.core.watch_statistics(begins);
    }

    /// This process is one of several that serve together: its number, and how many there are.
    fn set_place(&self, number: usize, count: usize) {
        self.of.core.set_place(number, count);
    }

    /// Ends `watch_loop`.
    fn end_watch(&self) {
        self.of.core.loop_watch().end();
    }

    /// What the loop does for a call of a thread counts as a call in the loop until the result is dropped.
    fn work_in_loop(&self) -> LoopWork {
        let work = LoopWork { _calls: Arc::clone(&self.in_loop) };
        self.of.core.loop_watch().note_call();
        work
    }

    /// A turn that begins with the next request for that event loop, and tells `runner` how it ends. If there is no
    /// request, what the loop is to watch until it asks again. `may_spin`: the loop has nothing else under way.
    fn next_for_loop<'py>(&self, py: Python<'py>, runner: Py<PyAny>, may_spin: bool) -> PyResult<Bound<'py, PyAny>> {
        match self.in_loop.next(py, may_spin) {
            Ok(request) => HandlerTurn::new(Arc::clone(&self.in_loop), runner, request, may_spin).into_bound_py_any(py),
            Err(watch) => watch.into_bound_py_any(py),
        }
    }
}

/// Something that the event loop does for a call of a thread.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct LoopWork {
    _calls: Arc<InLoop>,
}

/// The event loop as its watch sees it.
struct WatchedLoop {
    queue: Arc<AsyncQueue>,
    calls: Arc<InLoop>,
}

impl Watchable for WatchedLoop {
    fn is_busy(&self) -> bool {
        // Each call in the loop has one; the server and this object have the other two.
        self.queue.has_requests() || Arc::strong_count(&self.calls) > 2
    }

    fn wake(&self) {
        self.queue.wake();
    }
}

/// How running a handler ended.
enum Ran {
    /// The call has ended, with this status code.
    Ended(u8),
    /// A topic takes over the call.
    Subscribed(Py<Subscription>),
}

impl Server {
    #[inline]
    fn work_on(&self, py: Python<'_>, worker: &mut Worker, work: Work, spawn: &dyn Fn() -> bool) {
        worker.begin(spawn);
        match work {
            Work::Call(request) => self.handle_all(py, worker, request),
            Work::Hook(run) => {
                self.apart(py, || self.run_hook(py, *run));
                worker.finish(None);
            }
        }
    }

    /// Does one piece of work in a context of its own. The thread serves other clients next: what a handler, an interceptor
    /// or a hook puts into a context variable, such as whom it has recognized, must not be found there. Coroutine handlers
    /// have a context each as well.
    #[inline]
    fn apart(&self, py: Python<'_>, work: impl FnOnce()) {
        self.of.core.contain(|| {
            let _context = Entered::copy(py).expect("there is memory for a context");
            work();
        });
    }

    /// Runs a hook. It counts as running until it has returned.
    fn run_hook(&self, py: Python<'_>, mut run: HookRun) {
        match run.begin() {
            Some(Hook::Session(session, change)) => self.sessions.run_hook(py, &session, change),
            Some(Hook::Release(object)) => self.release(py, object),
            None => {}
        }
    }

    /// Tells the owner of an object that no client holds it any more. An exception goes to the interpreter's own hook.
    fn release(&self, py: Python<'_>, object: Object) {
        let Some(given) = Given::taken(object) else { return };
        if let Some(on_release) = &self.on_release
            && let Err(error) = on_release.bind(py).run([given.object.bind(py)])
        {
            error.write_unraisable(py, Some(on_release.bind(py)));
        }
    }

    /// The futures of the event loop that runs the coroutine handlers.
    pub(crate) fn waiting(&self) -> Arc<Waiting> {
        Arc::clone(&self.of.calling.waiting)
    }

    /// The core's server, which may also receive for clients of this process whose servers may call them.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.of.core
    }

    /// Passes messages for the operator to Python.
    fn pass_notices(&self, log: &Bound<'_, PyAny>, deserted: &Bound<'_, PyAny>) -> PyResult<()> {
        for notice in self.notices.take() {
            match notice {
                Notice::Line { serious, text } => log.run_with((serious, text))?,
                Notice::Deserted => deserted.run([])?,
            };
        }
        Ok(())
    }

    /// Handles a request, and the one-way requests that waited for it.
    #[inline]
    fn handle_all(&self, py: Python<'_>, worker: &mut Worker, request: Box<Request>) {
        let turn = request.oneway_turn();
        let mut next = Some(request);
        while let Some(request) = next {
            self.apart(py, || self.handle(py, request));
            next = worker.finish(turn.as_ref());
        }
    }

    /// Runs a handler and ends the call.
    fn handle(&self, py: Python<'_>, mut request: Box<Request>) {
        // Apart from the request, which is taken apart below.
        let target = request.target.take();
        let (served, given) = self.of.find(target.as_ref(), request.head.method);
        let method = served.method.get();
        if end_late(method, &request).is_some() {
            // Nobody waits for the result any more.
            return;
        }
        let code = match self.run(py, served, given, &mut request) {
            Ok(Ran::Ended(code)) => code,
            Ok(Ran::Subscribed(subscription)) => {
                let method = served.method.clone_ref(py);
                // The object is called for as long as the topic has the call.
                request.target = target;
                subscribe(py, &subscription, &method, request)
            }
            Err(error) => fail(method, &request, &describe_for(py, method, Call::new(&request, method), &error)),
        };
        tell_end(py, code);
    }

    /// Runs a handler and sends what it returns.
    fn run(&self, py: Python<'_>, served: &Served, given: Option<&Given>, request: &mut Request) -> PyResult<Ran> {
        let method = served.method.get();
        let _inherited = Inherited::enter(py, request.deadline)?;
        let result = self.call_handler(py, served, given, request)?;
        let _current = Current::enter(request, method);
        // Moved here to be dropped before `_current`: an unfinished generator then cleans up as part of the call.
        let result = result;
        if method.kind.server_streams() {
            if let Ok(subscription) = result.cast::<Subscription>() {
                Subscription::check(method)?;
                return Ok(Ran::Subscribed(subscription.clone().unbind()));
            }
            return self.send_items(py, method, request, &result).map(Ran::Ended);
        }
        // `None` is only for event loops: a worker waits for room.
        let ended = self.of.reply(py, method, request, result, is_observed())?;
        Ok(Ran::Ended(ended.unwrap_or(OK)))
    }

    fn call_handler<'py>(
        &self,
        py: Python<'py>,
        served: &Served,
        given: Option<&Given>,
        request: &mut Request,
    ) -> PyResult<Bound<'py, PyAny>> {
        let method = served.method.get();
        if request.is_oneway()
            && let Ok(dispatch) = served.handler(py).cast_exact::<RouteDispatch>()
        {
            dispatch_message(py, dispatch.get(), method, request)?;
            return Ok(py.None().into_bound(py));
        }
        if let Some(form) = method.arguments.single_buffer()
            && !request.is_named()
            && !method.kind.client_streams()
        {
            // No tuple for one argument: worth it for the smallest and most frequent calls.
            let argument = buffer(py, form, &mut request.payload)?;
            request.payload.clear();
            let _current = Current::enter(request, method);
            let handler = served.handler(py);
            return match given {
                None => handler.run([argument.bind(py)]),
                Some(given) => handler.run([given.object.bind(py), argument.bind(py)]),
            };
        }
        let event = request.take_event();
        let arguments = self.of.arguments(py, method, request, event)?;
        let _current = Current::enter(request, method);
        if !method.kind.client_streams() {
            return served.call(py, given, arguments);
        }
        let call = tracked(request)?;
        let stream = RequestStream::new(Arc::clone(&self.of), served.method.clone_ref(py), request, &call);
        let stream = Bound::new(py, stream)?.into_any();
        let mut values: Vec<Bound<'py, PyAny>> = arguments.iter().collect();
        values.insert(method.stream_position.min(values.len()), stream);
        served.call(py, given, PyTuple::new(py, values)?)
    }

    fn send_items(&self, py: Python<'_>, method: &Method, request: &Request, items: &Bound<'_, PyAny>) -> PyResult<u8> {
        let call = tracked(request)?;
        let mut turns = Turns::new();
        for item in items.items().map_err(|error| no_stream(&method.name, items, error))? {
            turns.give(py);
            let mut encoded = self.of.encode_reply(method, request.connection(), item?)?;
            let sent = encoded.send(py, |body| self.of.core.send_item(&call, &request.item(body), request.deadline));
            match sent.map_err(|error| too_long(py, &method.name, &error))? {
                ItemOutcome::Sent => encoded.sent(),
                outcome => {
                    // The handler's own clean-up runs now, not whenever the generator is collected.
                    if items.hasattr(intern!(py, "close"))? {
                        items.run_method(intern!(py, "close"), [])?;
                    }
                    if outcome == ItemOutcome::Late {
                        return Err(raise(py, &late(&method.name)));
                    }
                    request.forget();
                    return Ok(Failure::CANCELLED);
                }
            }
        }
        Ok(end_stream(method, request, is_observed()))
    }
}

/// Handles a message of the router.
#[inline(never)]
fn dispatch_message(py: Python<'_>, dispatch: &RouteDispatch, method: &Method, request: &mut Request) -> PyResult<()> {
    let Some(message) = dispatch.take(py, &mut request.payload)? else { return Ok(()) };
    let _current = Current::enter(request, method);
    dispatch.handle(py, &message).map(drop)
}

/// Hands a call over to a topic.
#[cold]
fn subscribe(py: Python<'_>, subscription: &Py<Subscription>, method: &Py<Method>, request: Box<Request>) -> u8 {
    subscription.get().take(py, method, Box::new(request));
    OK
}

type NativeHandlers = Vec<Arc<dyn NativeHandler>>;

/// What the core must know of each method, and the handlers that are written in Rust.
fn routings(py: Python<'_>, methods: &[Served]) -> PyResult<(Vec<Option<MethodRouting>>, NativeHandlers)> {
    let mut native = NativeHandlers::new();
    let mut routing = |served: &Served| {
        let Some(handler) = &served.handler else { return Ok(None) };
        let mut routing = served.method.get().routing();
        let handler = handler.bind(py);
        let found: Option<Arc<dyn NativeHandler>> = if let Ok(method) = handler.cast::<IntrospectionMethod>() {
            Some(Arc::new(*method.get()))
        } else if let Ok(method) = handler.cast::<HealthMethod>() {
            Some(Arc::new(method.get().clone()))
        } else if let Ok(inbox) = handler.cast::<RouteInbox>() {
            Some(Arc::clone(&inbox.get().0) as _)
        } else {
            None
        };
        if let Some(found) = found {
            routing.handler = HandlerKind::Native(u8::try_from(native.len())?);
            native.push(found);
        }
        Ok(Some(routing))
    };
    let routings = methods.iter().map(&mut routing).collect::<PyResult<_>>()?;
    Ok((routings, native))
}

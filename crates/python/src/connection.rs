//! A client's connection, as Python holds it: it makes callables for methods, and renews itself when it was lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{
    Adopter, CallDriver, Channel, Connection as Core, Patience, Retries, Rules, may_pass, picker_named,
};
use nearcall_core::lock::Mutex;
use nearcall_core::{Codec, Failure, Url};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3::{PyTraverseError, PyVisit};

use crate::asyncio::waiting::{Schedule, Waiting};
use crate::calls::callees::Calls;
use crate::calls::calling::{Calling, Limits, Way};
use crate::calls::deadline::Surroundings;
use crate::calls::outcome::late;
use crate::calls::retry_budget::RetryBudget;
use crate::calls::when_full::{Policy, WhenFull};
use crate::gil::callback::Callback;
use crate::gil::errors::{describe, invalid, raise};
use crate::gil::greenlets::waiting_beside;
use crate::gil::interpreter::{attach, detach};
use crate::options::common::{Proxied, Retried, options, proxy_of, retry_policy, seconds, trust};
use crate::options::login::Login;
use crate::options::peer::peer;
use crate::options::resolver::resolved_by;
use crate::options::tls::Tls;
use crate::serving::server::Server;

/// A client's connection to a server.
#[pyclass(frozen, extends = Calls, module = "nearcall._core")]
pub(crate) struct Connection {
    channel: Arc<Channel>,
    calling: Calling,
    handshake: Duration,
}

#[pymethods]
impl Connection {
    /// Does not [connect](Self::connect) yet.
    ///
    /// `on_change` is called with the description of a later server that describes itself differently; it gives the
    /// methods their successors, or raises. `on_drop` is called now and then with the numbers of one-way calls that
    /// were dropped. `make_passage` makes the object that is kept with a connection, from the connection's references.
    /// `resolve` returns the URLs of the servers there are now, in any thread, for a URL that is only a name; it may take any
    /// time, and raises if there is none.
    /// `explain` is called with the reason why there is no server, and whether that is because the connection was closed;
    /// it returns the text that users read instead, or `None`.
    /// `shown` is how errors name the server, if not by its URL. `timeout` limits each call, also one with streams; with
    /// `by_item`, it limits the wait for the next item of a stream instead.
    #[new]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "they are keyword arguments in Python"
    )]
    #[pyo3(signature = (url, *, spin, ring_size, max_message_size, handshake_timeout, codec, use_get, compression, allow_plaintext, tls, nats, allow_users, allow_groups, timeout, wait_for_ready, balancing, proxy, oneway, on_drop, on_change, make_passage, resolve=None, explain=None, shown=None, by_item=false))]
    fn new(
        py: Python<'_>,
        url: &str,
        spin: &Bound<'_, PyAny>,
        ring_size: usize,
        max_message_size: u64,
        handshake_timeout: f64,
        codec: &str,
        use_get: bool,
        compression: Option<&str>,
        allow_plaintext: bool,
        tls: Option<Py<Tls>>,
        nats: Option<Py<Login>>,
        allow_users: Vec<u32>,
        allow_groups: Vec<u32>,
        timeout: Option<f64>,
        wait_for_ready: bool,
        balancing: &str,
        proxy: Option<Proxied>,
        oneway: &str,
        on_drop: Py<PyAny>,
        on_change: Py<PyAny>,
        make_passage: Py<PyAny>,
        resolve: Option<Py<PyAny>>,
        explain: Option<Py<PyAny>>,
        shown: Option<&str>,
        by_item: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let mut url: Url = match resolve {
            Some(resolve) => resolved_by(url, resolve),
            None => url.parse().map_err(|bad: nearcall_core::BadUrl| invalid(py, bad.to_string()))?,
        };
        if let Some(shown) = shown {
            url = url.shown_as(shown);
        }
        let mut options = options(spin, ring_size, max_message_size, handshake_timeout, compression);
        trust(&mut options, allow_plaintext, tls, nats, allow_users, allow_groups);
        options.codec = if codec == "json" { Codec::Json } else { Codec::Proto };
        options.by_get = use_get;
        let timeout = timeout.map(seconds);
        let agree = move |description: &str| attach(|py| agree(py, &on_change, description));
        let handshake = options.handshake;
        options.proxy = proxy.map(|proxy| Arc::new(proxy_of(proxy)));
        let channel = Arc::new(Channel::new(url, options, picker_named(balancing), Box::new(agree)));
        let when_full = Arc::new(WhenFull::new(Policy::named(oneway), on_drop));
        let calling = Calling {
            way: Way::Channel(Arc::clone(&channel)),
            waiting: Arc::default(),
            limits: Limits { usual: timeout, own: None, by_item },
            wait_for_ready,
            when_full,
            of_callbacks: Arc::default(),
            serves: false,
            make_passage: Arc::new(make_passage),
            explain: explain.map(Arc::new),
            retries: None,
            copies: None,
        };
        let this = Self { channel, calling: calling.clone(), handshake };
        Ok(PyClassInitializer::from(Calls { calling }).add_subclass(this))
    }

    /// Connects for the first time; blocks for at most `handshake_timeout` seconds, and no longer than until the deadline
    /// of the surrounding blocks.
    fn connect(&self, py: Python<'_>) -> PyResult<()> {
        // Without `wait_for_ready`, the only attempt ends by itself within `handshake_timeout`.
        let until = self.calling.wait_for_ready.then(|| Instant::now() + self.handshake);
        let until = until
            .into_iter()
            .chain(Surroundings::look_and_wait(py, None, || format!("connecting to {}", self.channel.url()))?.until())
            .min();
        self.calling.usable(py, false, until).map(|_| ())
    }

    /// Goes on connecting for at most `slice` seconds. Returns whether it has connected. Raises if the server cannot be
    /// reached, unless that may change and the caller is `patient`. With 0 seconds it never waits.
    fn try_connect(&self, py: Python<'_>, patient: bool, slice: f64) -> PyResult<bool> {
        let slice = seconds(slice);
        let patience = if patient { Patience::Until(None) } else { Patience::FailFast };
        let connected = detach(py, || self.channel.usable(patience, Some(Instant::now() + slice), &mut || true));
        match connected {
            Ok(connected) => Ok(connected.is_some()),
            Err(failure) if patient && may_pass(&failure) => Ok(false),
            Err(failure) => Err(self.calling.failed(py, &failure)),
        }
    }

    /// Raises what a call without patience ends with in the pause after a failed attempt to connect. Never waits.
    fn check_pause(&self, py: Python<'_>) -> PyResult<()> {
        match detach(py, || self.channel.pausing(Patience::FailFast)) {
            Some(failure) => Err(self.calling.failed(py, &failure)),
            None => Ok(()),
        }
    }

    /// The server's own description, JSON.
    #[getter]
    fn description(&self) -> PyResult<String> {
        Ok(self.core()?.description().to_owned())
    }

    /// Where the server is.
    #[getter]
    fn url(&self) -> String {
        self.channel.url().to_string()
    }

    /// Who the server is: pid, uid and gid, or the address.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        peer(py, self.core()?.peer())
    }

    /// The same for every server that is connected now.
    #[getter]
    fn peers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.channel.connections().iter().map(|core| peer(py, core.peer())).collect()
    }

    /// Connects anew if the connection was lost, as a call does; for threads.
    fn renew(&self, py: Python<'_>) -> PyResult<()> {
        let until = Surroundings::look(py, self.calling.limits.of_call())?.until();
        if !self.calling.is_connected(py) {
            self.calling.usable(py, false, until)?;
        }
        Ok(())
    }

    /// How many one-way calls were dropped, by method.
    #[getter]
    fn dropped(&self) -> HashMap<String, u64> {
        self.calling.when_full.dropped()
    }

    /// How many calls are under way.
    #[getter]
    fn in_flight(&self) -> usize {
        self.current().iter().map(|core| core.in_flight()).sum()
    }

    /// The descriptors that the event loop is to poll for reading besides those that it polls already: one for each current
    /// connection.
    fn watch(&self) -> PyResult<Vec<i32>> {
        Ok(self.calling.waiting.watch(&self.current())?)
    }

    /// To be called when that descriptor is readable.
    fn on_readable(&self, py: Python<'_>, fileno: i32) -> PyResult<()> {
        self.calling.waiting.on_readable(py, fileno)
    }

    /// Whether the loop must go on polling it.
    fn goes_on(&self, fileno: i32) -> bool {
        self.calling.waiting.goes_on(fileno)
    }

    /// To be called when the loop polls it no more.
    fn unwatch(&self, fileno: i32) {
        self.calling.waiting.unwatch(fileno);
    }

    /// To be called by the event loop when it has run all ready callbacks while a call waits.
    fn on_idle(&self, py: Python<'_>) -> PyResult<()> {
        self.calling.waiting.on_idle(py)
    }

    /// Gives the connection to the event loop `running`, whose method `call_soon` is. `on_idle` calls this object's
    /// `on_idle`.
    ///
    /// `connect_again` takes the seconds to wait first, those to wait for a server that is not there, those left, and the
    /// exception to raise if no server comes. It returns a coroutine that connects.
    /// `send_again` takes a stream and the same values but the exception, and begins to send the stream again. `follow`
    /// makes the loop watch the current connections.
    fn use_loop(
        &self,
        running: Py<PyAny>,
        call_soon: Py<PyAny>,
        on_idle: Py<PyAny>,
        connect_again: Py<PyAny>,
        send_again: Py<PyAny>,
        follow: Py<PyAny>,
    ) {
        self.calling.waiting.use_loop(Schedule { running, call_soon, on_idle, connect_again, send_again, follow });
    }

    /// Ends the connection for good. `why` is what calls under way are told, if the server has ended.
    #[pyo3(signature = (why=None))]
    fn close(&self, py: Python<'_>, why: Option<String>) -> PyResult<()> {
        let failure = why.map(|why| Failure::new(Failure::UNAVAILABLE, why));
        let complete = detach(py, || self.channel.close(failure.as_ref()));
        self.calling.when_full.close(py, complete)?;
        let woken = self.calling.waiting.close(py);
        self.calling.waiting.leave_loop();
        woken
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.calling.waiting.traverse(&visit)
    }

    fn __clear__(&self) {
        self.calling.waiting.leave_loop();
    }

    /// Seconds that a round trip to the server takes, without any handler.
    #[pyo3(signature = (timeout=None))]
    fn ping(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<f64> {
        let default =
            timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).or(self.calling.limits.of_call());
        let what = || format!("a ping to {}", self.channel.url());
        let until = Surroundings::look_and_wait(py, default, what)?.until();
        let mut core = self.channel.ready(&[]).map_or_else(|| self.calling.usable(py, false, until), Ok)?;
        let (mut driver, rules) = (CallDriver::new(until), Rules { retries: None, idempotent: true, may_move: true });
        loop {
            let asked = Arc::clone(&core);
            match waiting_beside(py, move |go_on| asked.ping(until, go_on))? {
                Ok(took) => return Ok(took.as_secs_f64()),
                // Only the ping may have shown that the server is gone: ask the next one.
                Err(Err(failure)) => match driver.unsent(&rules, &core, failure) {
                    Ok(again) => core = self.calling.usable(py, again.hopeful, until)?,
                    Err(failure) => return Err(raise(py, &failure)),
                },
                Err(Ok(_)) => return Err(raise(py, &late("ping", core.name()))),
            }
        }
    }

    /// Lets the server at the other end call objects that this client gives to it, from now on.
    ///
    /// `callback_server` returns the server of this process that receives for the client's connections, this one and
    /// all later ones, and runs those calls. It is called for each connection, because a child by fork has another
    /// server. The other end may hold `max_references` objects at once. Never waits.
    fn serve_with(&self, callback_server: Py<PyAny>, max_references: usize) {
        let waiting = Arc::clone(&self.calling.of_callbacks);
        self.channel.serve_with(Arc::new(Callbacks { server: callback_server, waiting, max_references }));
    }

    /// Makes the callables of methods, each of whose calls may take `timeout` seconds in place of the client's, waits for
    /// a server or not, and is sent again as `retry` says, as long as `budget` allows it.
    #[pyo3(signature = (*, timeout, wait_for_ready, retry, budget))]
    fn calls(
        &self,
        timeout: Option<f64>,
        wait_for_ready: bool,
        retry: Option<Retried>,
        budget: Option<&Bound<'_, RetryBudget>>,
    ) -> Calls {
        let budget = budget.map(|budget| Arc::clone(&budget.get().0));
        let retries = retry.map(|retry| Arc::new(Retries::new(retry_policy(retry), budget)));
        let limits = Limits { own: timeout.map(seconds), ..self.calling.limits };
        Calls { calling: Calling { limits, wait_for_ready, retries, ..self.calling.clone() } }
    }
}

/// Lets a server of this process receive for a client whose own server may call it. Python names that server.
struct Callbacks {
    server: Py<PyAny>,
    waiting: Arc<Mutex<Option<Arc<Waiting>>>>,
    /// How many objects the server may hold at once, for each connection.
    max_references: usize,
}

impl Adopter for Callbacks {
    fn adopt(self: Arc<Self>, connection: &Arc<Core>) {
        attach(|py| {
            let server = self.server.bind(py).run([]).and_then(|server| Ok(server.cast_into::<Server>()?));
            match server {
                Ok(server) => {
                    *self.waiting.lock() = Some(server.get().waiting());
                    server.get().core().adopt(connection, self.max_references);
                }
                // Without this server, giving an object to the other end fails with an error of its own.
                Err(error) => error.write_unraisable(py, Some(self.server.bind(py))),
            }
        });
    }
}

impl Connection {
    /// The channel beneath it.
    pub(crate) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&self.channel)
    }

    fn core(&self) -> PyResult<Arc<Core>> {
        let core = self.channel.current();
        core.ok_or_else(|| {
            PyRuntimeError::new_err(
                "there is no connection yet: await the client or channel, or enter it with 'async with'",
            )
        })
    }

    /// The connections that new calls use.
    fn current(&self) -> Vec<Arc<Core>> {
        if self.channel.is_balanced() {
            self.channel.connections()
        } else {
            self.channel.current().into_iter().collect()
        }
    }
}

/// Lets Python compare the client's methods with a server that describes itself differently.
fn agree(py: Python<'_>, on_change: &Py<PyAny>, description: &str) -> Result<(), Failure> {
    let description = PyString::new(py, description);
    on_change.bind(py).run([description.as_any()]).map(|_| ()).map_err(|error| describe(py, &error))
}

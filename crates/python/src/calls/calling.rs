//! What every callable needs of its connection: where to send, and how to get a new connection when it was lost.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{COMEBACK, Cause, Channel, Connection as Core, Patience, Pushback, Retries, Tally};
use nearcall_core::lock::Mutex;
use nearcall_core::{Body, Failure, Incoming, Kind, Metadata, Outgoing, is_past};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::asyncio::handler_loop;
use crate::asyncio::waiting::Waiting;
use crate::calls::target::Target;
use crate::calls::when_full::WhenFull;
use crate::gil::callback::Callback;
use crate::gil::errors::{describe, invalid, raise};
use crate::gil::interpreter::{SIGNAL_CHECK, attach, detach};
use crate::values::plan::Method;

/// The most attempts at a call whose connection is lost before the call begins.
pub(crate) const ATTEMPTS: u32 = 3;
/// Metadata key: how often a call has failed before, when it is sent once more.
const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";

/// Whether to wait for another server after `failed` was lost. A server that died without sending GOAWAY is no reason
/// to hope for a successor, except for an idempotent method.
pub(crate) fn is_hopeful(failed: &Core, method: &Method) -> bool {
    failed.is_going_away() || method.idempotent
}

/// Converts a number of seconds from Python. The error for a bad number calls it `name`.
pub(crate) fn seconds_of(py: Python<'_>, name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| invalid(py, format!("{name} must be a number of seconds, not {seconds}")))
}

/// How to send a call once more.
pub(crate) struct Again {
    /// What the last attempt failed with.
    pub(crate) failure: Failure,
    /// The metadata that came with the failure.
    pub(crate) trailing: Option<Metadata>,
    /// How long to wait before the next attempt.
    pub(crate) pause: Duration,
    /// [Whether](is_hopeful) to wait for another server.
    pub(crate) hopeful: bool,
}

impl Again {
    /// The exception that the last attempt has failed with.
    pub(crate) fn raise(&self, py: Python<'_>, method: &Method) -> PyErr {
        method.raise(py, &self.failure, self.trailing.as_ref())
    }
}

/// Where calls go.
#[derive(Clone)]
pub(crate) enum Way {
    /// To a service, over a connection that is renewed when it is lost.
    Channel(Arc<Channel>),
    /// To an object, which lives as long as its connection.
    Object(Arc<Target>),
    /// Nowhere. Calls of the other side's objects begin with this, and put [`Way::Object`] in its place.
    Nowhere,
}

/// How long calls may take, unless a surrounding `nearcall.timeout` block allows less.
#[derive(Clone, Copy, Default)]
pub(crate) struct Limits {
    /// The client's timeout, for every call over the connection.
    pub(crate) usual: Option<Duration>,
    /// The callable's own timeout, instead of `usual`: the shortest that `within` was given.
    pub(crate) own: Option<Duration>,
    /// For streams, the timeout limits the wait for the next item; the stream as a whole may take any time.
    pub(crate) by_item: bool,
}

impl Limits {
    #[inline]
    pub(crate) fn of_call(&self) -> Option<Duration> {
        self.own.or(self.usual)
    }

    pub(crate) fn of_stream(&self) -> Option<Duration> {
        if self.by_item { None } else { self.of_call() }
    }

    pub(crate) fn of_item(&self) -> Option<Duration> {
        if self.by_item { self.of_call() } else { None }
    }
}

/// What every callable needs of its connection.
#[derive(Clone)]
pub(crate) struct Calling {
    pub(crate) way: Way,
    /// The futures of the event loop that makes the calls, if one does.
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) limits: Limits,
    pub(crate) wait_for_ready: bool,
    pub(crate) when_full: Arc<WhenFull>,
    /// If a server of this process receives for a client of threads: the futures of that server's event loop.
    pub(crate) of_callbacks: Arc<Mutex<Option<Arc<Waiting>>>>,
    /// A server makes the calls.
    pub(crate) serves: bool,
    /// Makes the object that Python keeps with a connection, for the references that cross it.
    pub(crate) make_passage: Arc<Py<PyAny>>,
    /// Takes the reason why there is no server, and whether that is because the connection was closed. Returns the text
    /// that users read instead, if there is a better one.
    pub(crate) explain: Option<Arc<Py<PyAny>>>,
    /// Which failed calls are sent again, if the user set a policy.
    pub(crate) retries: Option<Arc<Retries>>,
    /// Set for the copies of one call, each of which goes to another server if there is one.
    pub(crate) copies: Option<Arc<Copies>>,
}

/// The connections to which the copies of one call have gone.
#[derive(Default)]
pub(crate) struct Copies {
    asked: Mutex<Vec<Arc<Core>>>,
}

impl Copies {
    #[cold]
    fn ready(&self, channel: &Channel) -> Option<Arc<Core>> {
        let asked = self.asked.lock().clone();
        let next = channel.ready_beside(&asked)?;
        self.asked.lock().push(Arc::clone(&next));
        Some(next)
    }
}

impl Calling {
    /// The same, with a timeout of `seconds` for each call instead of the client's.
    pub(crate) fn within(&self, py: Python<'_>, seconds: f64) -> PyResult<Self> {
        let most = seconds_of(py, "timeout", seconds)?;
        let limits = Limits { own: Some(self.limits.own.map_or(most, |own| own.min(most))), ..self.limits };
        Ok(Self { limits, ..self.clone() })
    }

    /// The same, for the copies of one call.
    pub(crate) fn for_copies(&self) -> Self {
        Self { copies: Some(Arc::default()), ..self.clone() }
    }

    /// The current connection, if it is usable.
    #[inline]
    pub(crate) fn ready(&self) -> Option<Arc<Core>> {
        match (&self.way, &self.copies) {
            (Way::Channel(channel), None) => channel.ready(),
            (Way::Channel(channel), Some(copies)) => copies.ready(channel),
            _ => self.ready_for_object(),
        }
    }

    /// Like `ready`, for an event loop: of several connections, the loop then watches the chosen one.
    #[inline]
    pub(crate) fn ready_for_loop(&self, py: Python<'_>) -> PyResult<Option<Arc<Core>>> {
        let ready = self.ready();
        if let (Way::Channel(channel), Some(core)) = (&self.way, &ready)
            && channel.is_balanced()
        {
            self.waiting.follow(py, core)?;
        }
        Ok(ready)
    }

    fn ready_for_object(&self) -> Option<Arc<Core>> {
        match &self.way {
            Way::Object(target) => target.hold.core().filter(|core| !core.is_dead()),
            Way::Channel(_) | Way::Nowhere => None,
        }
    }

    /// The number of the called object; `None` if a service is called.
    #[inline]
    pub(crate) fn target(&self) -> Option<NonZeroU64> {
        match &self.way {
            Way::Object(target) => Some(target.id),
            Way::Channel(_) | Way::Nowhere => None,
        }
    }

    /// The URL of the server, or the name of the peer that has the object.
    pub(crate) fn place(&self) -> String {
        match &self.way {
            Way::Channel(channel) => channel.url().to_string(),
            Way::Object(target) => target.place().to_owned(),
            Way::Nowhere => String::new(),
        }
    }

    /// Whether there will be no connection any more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(&self.way, Way::Channel(channel) if channel.is_closed())
    }

    /// Whether there is a connection now.
    pub(crate) fn is_connected(&self, py: Python<'_>) -> bool {
        // If no loop watches the connection, nobody may have noticed its end since the last call.
        let stands = |core: &Arc<Core>| !self.waiting.is_threads() || detach(py, || core.stands());
        match &self.way {
            Way::Channel(channel) if channel.is_balanced() => channel.connections().iter().any(stands),
            Way::Channel(channel) => channel.ready().as_ref().is_some_and(stands),
            Way::Object(_) | Way::Nowhere => false,
        }
    }

    /// Whether a call may go over another connection than the one it was made on.
    #[inline]
    pub(crate) fn may_move(&self) -> bool {
        matches!(self.way, Way::Channel(_))
    }

    /// Whether a call that failed so as it was sent never left, and may go over another connection.
    pub(crate) fn may_begin_elsewhere(&self, core: &Core, failure: &Failure) -> bool {
        self.may_move() && !core.is_usable() && failure.code == Failure::UNAVAILABLE
    }

    /// A call's frame, without its compression.
    #[inline]
    pub(crate) fn request<'a>(
        &self,
        method: &'a Method,
        body: Body<'a>,
        flags: u8,
        deadline_us: Option<u64>,
        metadata: Option<Metadata>,
    ) -> Outgoing<'a> {
        Outgoing {
            method: method.number,
            flags,
            path: method.path.as_ref(),
            target: self.target(),
            deadline_us,
            metadata,
            ..Outgoing::new(Kind::Call, body)
        }
    }

    /// Decides whether and how to send a call once more, from the event that ended it.
    #[cold]
    pub(crate) fn again(&self, core: &Core, method: &Method, event: &Incoming, tally: &mut Tally) -> Option<Again> {
        if event.head.kind != Kind::Error || !self.may_move() {
            return None;
        }
        let failure = event.failure().unwrap_or_else(Failure::from);
        let gone = !core.is_usable() && failure.code == Failure::UNAVAILABLE;
        let cause = if event.is_unbegun() {
            if gone { Cause::NeverSent } else { Cause::Refused }
        } else if event.is_lost() || (gone && core.is_dead()) {
            Cause::Lost
        } else {
            Cause::Answered(failure.code)
        };
        let pushback = event.head.metadata().and_then(Pushback::of);
        let pause = tally.again(self.retries.as_deref(), cause, method.idempotent, pushback)?;
        // A server that has answered is still there: there is no other server to wait for.
        let hopeful = !matches!(cause, Cause::Answered(_)) && is_hopeful(core, method);
        Some(Again { failure, trailing: event.head.metadata().cloned(), pause, hopeful })
    }

    /// Like `again`, for a call whose connection was lost before the call could begin.
    #[cold]
    pub(crate) fn again_unsent(
        &self,
        core: &Core,
        method: &Method,
        failure: Failure,
        tally: &mut Tally,
    ) -> Result<Again, Failure> {
        match tally.again(self.retries.as_deref(), Cause::NeverSent, method.idempotent, None) {
            Some(pause) => Ok(Again { failure, trailing: None, pause, hopeful: is_hopeful(core, method) }),
            None => Err(failure),
        }
    }

    /// Notes that a call has succeeded.
    #[inline]
    pub(crate) fn succeeded(&self) {
        if let Some(retries) = &self.retries {
            retries.succeeded();
        }
    }

    /// Seconds that a call waits for a server that is not there, its deadline aside. A call whose server is gone may be
    /// [hopeful](is_hopeful).
    pub(crate) fn patience(&self, hopeful: bool) -> f64 {
        if self.wait_for_ready {
            f64::INFINITY
        } else if hopeful {
            COMEBACK.as_secs_f64()
        } else {
            0.0
        }
    }

    /// Returns a usable connection, and connects if need be. `until` is the deadline of the call.
    #[cold]
    pub(crate) fn usable(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<Arc<Core>> {
        let patience = if self.wait_for_ready { Patience::Until(until) } else { Patience::FailFast };
        self.connect(py, patience, until)
    }

    /// Like `usable`, for a call whose server is gone. If the call [is hopeful](is_hopeful), waits for a successor:
    /// until the deadline if the client waits for servers, else for [`COMEBACK`] at most.
    pub(crate) fn usable_again(&self, py: Python<'_>, hopeful: bool, until: Option<Instant>) -> PyResult<Arc<Core>> {
        if !hopeful {
            return self.usable(py, until);
        }
        let soon = Instant::now() + COMEBACK;
        let soon = if self.wait_for_ready { until } else { Some(until.map_or(soon, |until| until.min(soon))) };
        self.connect(py, Patience::Until(soon), until)
    }

    /// For a call that was refused here because it does not fit the server's description. If that server is gone, the
    /// next one may be asked instead: returns the failure to try again with. Otherwise returns `refusal`.
    #[cold]
    pub(crate) fn reconsider(&self, py: Python<'_>, core: &Core, refusal: PyErr) -> PyResult<Failure> {
        let by_server = matches!(describe(py, &refusal).code, Failure::FAILED_PRECONDITION | Failure::UNIMPLEMENTED);
        // Nothing was sent, so the loss of the connection may not have been noticed yet.
        if !by_server || !self.may_move() || detach(py, || core.stands()) {
            return Err(refusal);
        }
        Ok(Failure::new(Failure::UNAVAILABLE, format!("the server at {} has stopped", core.name())))
    }

    /// The exception for why there is no connection.
    pub(crate) fn failed(&self, py: Python<'_>, failure: &Failure) -> PyErr {
        let closed = failure.code == Failure::CANCELLED && self.is_closed();
        let explained = match &self.explain {
            Some(explain) if closed || failure.code == Failure::UNAVAILABLE => explain
                .bind(py)
                .run([PyString::new(py, &failure.message).as_any(), PyBool::new(py, closed).as_any()])
                .and_then(|text| text.extract::<Option<String>>()),
            _ => Ok(None),
        };
        match explained {
            Ok(Some(text)) => raise(py, &Failure::new(Failure::UNAVAILABLE, text)),
            Ok(None) => raise(py, failure),
            Err(error) => error,
        }
    }

    /// Returns a usable connection. Handles signals such as Ctrl-C while it waits.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method has one lifetime, the closure is for any"
    )]
    pub(crate) fn connect(&self, py: Python<'_>, patience: Patience, until: Option<Instant>) -> PyResult<Arc<Core>> {
        let channel = match &self.way {
            Way::Channel(channel) => channel,
            Way::Object(target) => return Err(raise(py, &target.gone())),
            Way::Nowhere => return Err(raise(py, &Failure::new(Failure::UNAVAILABLE, "there is no connection"))),
        };
        // With such a deadline nothing waits.
        if !is_past(until) {
            handler_loop::check(py, || format!("connecting to {}", channel.url()))?;
        }
        let mut stopped = None;
        let mut go_on = || {
            stopped = attach(|py| py.check_signals()).err();
            stopped.is_none()
        };
        let connected = detach(py, || channel.usable(patience, until, &mut go_on));
        match (connected, stopped) {
            (_, Some(stopped)) => Err(stopped),
            (Ok(Some(core)), None) => Ok(core),
            (Ok(None), None) => {
                let url = channel.url();
                let what = format!("there was no connection to {url} before the deadline: the server does not answer");
                Err(raise(py, &Failure::new(Failure::DEADLINE_EXCEEDED, what)))
            }
            (Err(failure), None) => Err(self.failed(py, &failure)),
        }
    }
}

/// Waits before a call is sent once more, and handles signals meanwhile. Returns `false` at once if the deadline would
/// pass during the pause.
pub(crate) fn pause(py: Python<'_>, pause: Duration, until: Option<Instant>) -> PyResult<bool> {
    let end = Instant::now() + pause;
    if until.is_some_and(|until| end >= until) {
        return Ok(pause.is_zero());
    }
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        detach(py, || std::thread::sleep(left.min(SIGNAL_CHECK)));
        py.check_signals()?;
    }
}

/// A call's metadata, with the number of its failed attempts if there are any.
#[inline]
pub(crate) fn counted(metadata: Option<Metadata>, tally: Tally) -> Option<Metadata> {
    if tally.failed() == 0 {
        return metadata;
    }
    let mut metadata = metadata.unwrap_or_default();
    metadata.push(PREVIOUS_ATTEMPTS, tally.failed().to_string().as_bytes());
    Some(metadata)
}

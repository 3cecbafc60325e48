//! What every callable needs of its connection: where to send, and how to get a new connection when it was lost.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{Channel, Connection as Core, Patience, REPLACEMENT_WAIT, Retries};
use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, is_past};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::asyncio::handler_loop;
use crate::asyncio::waiting::Waiting;
use crate::calls::target::{Target, gone};
use crate::calls::when_full::WhenFull;
use crate::gil::callback::Callback;
use crate::gil::errors::{describe, invalid, raise};
use crate::gil::greenlets::waiting_beside;
use crate::gil::interpreter::detach;

/// Converts a number of seconds from Python. The error for a bad number calls it `name`.
pub(crate) fn seconds_of(py: Python<'_>, name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| invalid(py, format!("{name} must be a number of seconds, not {seconds}")))
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
        let next = channel.ready(&asked)?;
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

    /// The current connection, if it is usable.
    #[inline]
    pub(crate) fn ready(&self) -> Option<Arc<Core>> {
        match (&self.way, &self.copies) {
            (Way::Channel(channel), None) => channel.ready(&[]),
            (Way::Channel(channel), Some(copies)) => copies.ready(channel),
            (Way::Object(target), _) => target.hold.core().filter(|core| !core.is_dead()),
            (Way::Nowhere, _) => None,
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
            Way::Object(target) => target.name.to_string(),
            Way::Nowhere => String::new(),
        }
    }

    /// Whether there will be no connection any more.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.way {
            Way::Channel(channel) => channel.is_closed(),
            Way::Object(target) => target.hold.core().is_none_or(|core| core.is_dead()),
            Way::Nowhere => false,
        }
    }

    /// Whether there is a connection now.
    pub(crate) fn is_connected(&self, py: Python<'_>) -> bool {
        // If no loop watches the connection, nobody may have noticed its end since the last call.
        let stands = |core: &Arc<Core>| !self.waiting.is_threads() || detach(py, || core.stands());
        match &self.way {
            Way::Channel(channel) if channel.is_balanced() => channel.connections().iter().any(stands),
            Way::Channel(channel) => channel.ready(&[]).as_ref().is_some_and(stands),
            Way::Object(_) => true,
            Way::Nowhere => false,
        }
    }

    /// Whether a call may go over another connection than the one it was made on.
    #[inline]
    pub(crate) fn may_move(&self) -> bool {
        matches!(self.way, Way::Channel(_))
    }

    /// Seconds that a call waits for a server that is not there, its deadline aside. A call whose server is gone may be
    /// hopeful.
    pub(crate) fn patience(&self, hopeful: bool) -> f64 {
        if self.wait_for_ready {
            f64::INFINITY
        } else if hopeful {
            REPLACEMENT_WAIT.as_secs_f64()
        } else {
            0.0
        }
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

    /// Returns a usable connection, and connects if need be. `until` is the deadline of the call; a `hopeful` one waits for
    /// the successor of its server. Handles signals such as Ctrl-C while it waits.
    #[cold]
    pub(crate) fn usable(&self, py: Python<'_>, hopeful: bool, until: Option<Instant>) -> PyResult<Arc<Core>> {
        let patience = Patience::of_call(self.wait_for_ready, hopeful, until);
        let channel = match &self.way {
            Way::Channel(channel) => channel,
            Way::Object(target) => return Err(raise(py, &gone(&target.name))),
            Way::Nowhere => return Err(raise(py, &Failure::new(Failure::UNAVAILABLE, "there is no connection"))),
        };
        // With such a deadline nothing waits.
        if !is_past(until) {
            handler_loop::check(py, || format!("connecting to {}", channel.url()))?;
        }
        let channel = Arc::clone(channel);
        let dialled = Arc::clone(&channel);
        match waiting_beside(py, move |go_on| dialled.usable(patience, until, go_on))? {
            Ok(Some(core)) => Ok(core),
            Ok(None) => {
                let url = channel.url();
                let what = format!("there was no connection to {url} before the deadline: the server does not answer");
                Err(raise(py, &Failure::new(Failure::DEADLINE_EXCEEDED, what)))
            }
            Err(failure) => Err(self.failed(py, &failure)),
        }
    }
}

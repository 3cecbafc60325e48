//! `grpc.health.v1.Health`: whether a server, or one of its services, may be given calls. In Rust, so that it answers
//! while every handler in Python is busy.
//!
//! It follows [its description](https://github.com/grpc/grpc/blob/master/doc/health-checking.md). `Watch` keeps the
//! request of each client that watches, but no thread: the thread that changes a status sends it to the clients that
//! watch the service. A client that reads late gets only the latest status.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nearcall_core::lock::Mutex;
use nearcall_core::protobuf::{Fields, Wire, Writer};
use nearcall_core::server::{CallObserver, ItemOutcome, NativeHandler, Request, ServerCall};
use nearcall_core::{Body, Failure, Kind, Malformed, Outgoing};
use pyo3::prelude::*;

use crate::gil::interpreter::detach;
use crate::serving::served::late;

/// `HealthCheckResponse.ServingStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Serving = 1,
    NotServing = 2,
    /// Only sent to clients that watch.
    Unknown = 3,
}

/// The health of a server and its services.
#[derive(Default)]
struct States {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Whether each service may be given calls. The server as a whole is the service without a name.
    serving: BTreeMap<String, bool>,
    /// By the addresses of their calls (`ServerCall`).
    watches: HashMap<usize, Watch>,
    /// The server takes no more calls, whatever `serving` says.
    stopping: bool,
}

/// A client that watches a service.
struct Watch {
    request: Box<Request>,
    call: Arc<ServerCall>,
    /// The status that the client got last.
    told: Option<Status>,
}

impl Known {
    fn status(&self, service: &str) -> Status {
        match self.serving.get(service) {
            None => Status::Unknown,
            Some(true) if !self.stopping => Status::Serving,
            Some(_) => Status::NotServing,
        }
    }

    /// Sends a client the status of its service, if that has changed and the client reads. Returns the watch if it is
    /// over.
    fn tell(&mut self, key: usize) -> Option<Watch> {
        let watch = self.watches.get(&key)?;
        // The name was read without error when the call arrived.
        let status = self.status(service(&watch.request).unwrap_or_default());
        if watch.told != Some(status) {
            let item = response(status);
            let item = Outgoing::new(Kind::Item, Body::Whole(&item));
            match watch.call.try_send_item(&item, watch.request.deadline) {
                Ok(ItemOutcome::Sent) => self.watches.get_mut(&key)?.told = Some(status),
                // `changed` is called when the client has room.
                Ok(ItemOutcome::NoCredit) => {}
                Ok(ItemOutcome::Cancelled | ItemOutcome::Late) | Err(_) => return self.watches.remove(&key),
            }
        } else if watch.call.is_cancelled() {
            return self.watches.remove(&key);
        }
        if self.stopping { self.watches.remove(&key) } else { None }
    }
}

impl States {
    /// Looks again at the watches that `change` returns, and ends those that are over.
    fn tell(&self, change: impl FnOnce(&mut Known) -> Vec<usize>) {
        let mut known = self.known.lock();
        let keys = change(&mut known);
        let over: Vec<Watch> = keys.into_iter().filter_map(|key| known.tell(key)).collect();
        drop(known);
        for watch in over {
            let is_late = watch.request.is_late();
            let stopping = || Failure::new(Failure::UNAVAILABLE, "the server is stopping");
            // If the call is cancelled, the failure reaches nobody.
            watch.request.fail(&if is_late { late("Watch") } else { stopping() });
        }
    }
}

/// A method of the service, as the handler of a server's method.
#[pyclass(frozen, module = "nearcall._core")]
#[derive(Clone)]
pub(crate) struct HealthMethod {
    states: Arc<States>,
    kind: Method,
}

#[derive(Clone, Copy)]
enum Method {
    Check,
    Watch,
    List,
}

impl CallObserver for HealthMethod {
    fn changed(&self, call: &Arc<ServerCall>) {
        self.states.tell(|_| vec![Arc::as_ptr(call).addr()]);
    }
}

impl NativeHandler for HealthMethod {
    fn handle(&self, request: Box<Request>) {
        let answer = match (self.kind, service(&request)) {
            (Method::List, _) => Ok(listed(&self.states.known.lock())),
            (_, Err(bad)) => Err(Failure::new(Failure::INVALID_ARGUMENT, bad.0)),
            (Method::Check, Ok(name)) => match self.states.known.lock().status(name) {
                Status::Unknown => Err(Failure::new(Failure::NOT_FOUND, "the server has no such service")),
                status => Ok(response(status)),
            },
            (Method::Watch, Ok(_)) => {
                let Some(call) = request.call.clone() else { return };
                let key = Arc::as_ptr(&call).addr();
                self.states.tell(|known| {
                    known.watches.insert(key, Watch { request, call, told: None });
                    vec![key]
                });
                return;
            }
        };
        request.answer(answer);
    }

    fn stopping(&self) {
        self.states.tell(|known| {
            known.stopping = true;
            known.watches.keys().copied().collect()
        });
    }
}

/// The health of a server, for the program that runs it.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Health {
    states: Arc<States>,
}

#[pymethods]
impl Health {
    /// For these services. All of them serve at first.
    #[new]
    fn new(services: Vec<String>) -> Self {
        let serving = services.into_iter().map(|service| (service, true)).collect();
        Self { states: Arc::new(States { known: Mutex::new(Known { serving, ..Known::default() }) }) }
    }

    /// Sets whether a service serves from now on, and tells the clients that watch it.
    fn set(&self, py: Python<'_>, service: String, serving: bool) {
        detach(py, || {
            self.states.tell(|known| {
                known.serving.insert(service, serving);
                known.watches.keys().copied().collect()
            });
        });
    }

    /// The handlers of `Check`, `Watch` and `List`.
    fn methods(&self) -> [HealthMethod; 3] {
        [Method::Check, Method::Watch, Method::List].map(|kind| HealthMethod { states: Arc::clone(&self.states), kind })
    }
}

/// The service that a `HealthCheckRequest` names.
fn service(request: &Request) -> Result<&str, Malformed> {
    let mut fields = Fields::of(request.payload.inline().unwrap_or_default());
    let mut service = "";
    while let Some((number, wire)) = fields.next()? {
        if let (1, Wire::Bytes(name)) = (number, wire) {
            service = std::str::from_utf8(name).map_err(|_| Malformed("the service's name is not UTF-8"))?;
        }
    }
    Ok(service)
}

/// A `HealthCheckResponse`.
fn response(status: Status) -> Vec<u8> {
    let mut out = Writer::with_capacity(2);
    out.varint_tag(1);
    out.varint(status as u64);
    out.into_bytes()
}

/// A `HealthListResponse`.
fn listed(known: &Known) -> Vec<u8> {
    let mut out = Writer::default();
    for service in known.serving.keys() {
        out.bytes_tag(1);
        let entry = out.open();
        out.bytes_tag(1);
        out.bytes(service.as_bytes());
        out.bytes_tag(2);
        out.bytes(&response(known.status(service)));
        out.close(entry);
    }
    out.into_bytes()
}

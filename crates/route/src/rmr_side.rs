//! A node's side towards programs of RMR: the sockets, and what becomes of messages that come over them.

use std::net::{TcpListener, ToSocketAddrs};
use std::sync::Arc;

use arc_swap::ArcSwap;
use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, Payload};

use crate::arrived::Arrived;
use crate::inbox::Inbox;
use crate::message::{Envelope, Head, Heads};
use crate::rmr::frame::{Frame, Sender};
use crate::rmr::pushed::kinds;
use crate::rmr::{Exchange, ExchangeCounts, Limits, Link, Outlet, Sink};
use crate::table::check_place;
use crate::way::Way;
use crate::work::{Starter, Work};

/// What a node's owner says of RMR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RmrOptions {
    /// Bytes of the longest message that is taken.
    pub longest: usize,
    /// Bytes of messages that may wait to be taken.
    pub queue: usize,
    /// Whether other machines may be spoken with. RMR does not encrypt.
    pub anywhere: bool,
    /// Whether all messages are taken, or only replies to calls.
    pub listens: bool,
    /// Whether a route manager may push tables. They wait apart from other messages.
    pub managed: bool,
    /// Whether an endpoint that is `host:port` alone is a program of RMR.
    pub plain: bool,
}

/// What a node has for programs of RMR.
pub struct RmrSide {
    options: RmrOptions,
    start: Starter,
    sender: Arc<ArcSwap<Sender>>,
    inbox: Arc<Inbox>,
    /// Tables that a route manager has pushed.
    tables: Arc<Inbox>,
    exchange: Mutex<Option<Arc<Exchange>>>,
}

impl RmrSide {
    pub(crate) fn new(name: &str, options: RmrOptions, inbox: Arc<Inbox>, start: Starter) -> Self {
        let sender = Sender { source: name.to_owned(), source_address: String::new() };
        Self {
            options,
            start,
            sender: Arc::new(ArcSwap::from_pointee(sender)),
            inbox,
            tables: Inbox::new(Arc::default()),
            exchange: Mutex::default(),
        }
    }

    /// Sets where this node takes what programs of RMR send.
    pub fn set_sender(&self, sender: Sender) {
        self.sender.store(Arc::new(sender));
    }

    /// The way to the program of RMR that an endpoint names; `None` if it names another receiver.
    pub(crate) fn way(&self, endpoint: &str) -> Option<Result<Way, Failure>> {
        let plain = self.options.plain && !endpoint.contains("://");
        let places = if plain { endpoint } else { endpoint.strip_prefix("rmr://")? };
        Some(self.link(places).map(|link| Way::Rmr { link, sender: Arc::clone(&self.sender) }))
    }

    fn link(&self, places: &str) -> Result<Arc<Link>, Failure> {
        for place in places.split(',') {
            check_place(place)
                .map_err(|why| Failure::new(Failure::INVALID_ARGUMENT, format!("rmr://{places}: {why}")))?;
        }
        Ok(Link::new(self.exchange()?, places, self.options.anywhere))
    }

    /// Takes messages from now on at `host:port`, and returns that with the port that the system chose, if it was 0.
    ///
    /// # Errors
    /// The place cannot be had.
    pub fn listen(&self, place: &str) -> Result<String, Failure> {
        let failed = |code, error: &dyn std::fmt::Display| {
            Failure::new(code, format!("cannot take messages at rmr://{place}: {error}"))
        };
        let unavailable = |error: std::io::Error| {
            let taken = error.kind() == std::io::ErrorKind::AddrInUse;
            failed(if taken { Failure::ALREADY_EXISTS } else { Failure::UNAVAILABLE }, &error)
        };
        let form = "write rmr://host:port, such as rmr://127.0.0.1:4560";
        let (host, _) = place.rsplit_once(':').ok_or_else(|| failed(Failure::INVALID_ARGUMENT, &form))?;
        let addresses: Vec<_> =
            place.to_socket_addrs().map_err(|error| failed(Failure::INVALID_ARGUMENT, &error))?.collect();
        if !self.options.anywhere && addresses.iter().any(|address| !address.ip().is_loopback()) {
            let text =
                "RMR does not encrypt: say allow_plaintext=True if other machines may connect, or listen at 127.0.0.1";
            return Err(failed(Failure::INVALID_ARGUMENT, &text));
        }
        let listener = TcpListener::bind(&addresses[..]).map_err(unavailable)?;
        let port = listener.local_addr().map_err(unavailable)?.port();
        self.exchange()?.listen(listener).map_err(unavailable)?;
        Ok(format!("{host}:{port}"))
    }

    /// Where tables wait that a route manager has pushed.
    #[must_use]
    pub fn tables(&self) -> &Arc<Inbox> {
        &self.tables
    }

    /// What has happened on the sockets so far.
    #[must_use]
    pub fn counts(&self) -> ExchangeCounts {
        self.current().map(|exchange| exchange.counts()).unwrap_or_default()
    }

    /// Closes the sockets that are left, once nothing more is to be sent.
    pub fn close(&self) {
        if let Some(exchange) = self.current() {
            exchange.close();
        }
    }

    fn current(&self) -> Option<Arc<Exchange>> {
        self.exchange.lock().clone()
    }

    /// The exchange; makes it if there is none, and has it started.
    fn exchange(&self) -> Result<Arc<Exchange>, Failure> {
        let mut exchange = self.exchange.lock();
        if let Some(exchange) = &*exchange {
            return Ok(Arc::clone(exchange));
        }
        let (inbox, tables) = (Arc::clone(&self.inbox), Arc::clone(&self.tables));
        let sink = RmrSink { inbox, tables, options: self.options };
        let made = Exchange::new(Limits::usual(self.options.longest), Box::new(sink));
        let made = made.map_err(|error| Failure::new(Failure::RESOURCE_EXHAUSTED, error.to_string()))?;
        *exchange = Some(Arc::clone(&made));
        drop(exchange);
        for inbox in [&self.inbox, &self.tables] {
            let room = Arc::downgrade(&made);
            inbox.set_on_room(Box::new(move || _ = room.upgrade().map(|exchange| exchange.room())));
        }
        // Without the lock: to start it takes the interpreter.
        (self.start)(Work::Exchange(Arc::clone(&made)))?;
        Ok(made)
    }
}

/// Takes messages that programs of RMR send.
struct RmrSink {
    inbox: Arc<Inbox>,
    tables: Arc<Inbox>,
    options: RmrOptions,
}

impl Sink for RmrSink {
    fn take(&self, frame: &Frame<'_>, _: &Arc<Outlet>) -> bool {
        let is_table = self.options.managed && frame.kind() == kinds::TABLE;
        let inbox = if is_table { &self.tables } else { &self.inbox };
        inbox.offer(frame.transaction(), self.options.queue, self.options.listens, || arrived(frame))
    }
}

/// A message as if another node had sent it. `None` if it has no such form.
fn arrived(frame: &Frame<'_>) -> Option<Arrived> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let (source, by_address) = (text(frame.source())?, text(frame.source_address())?);
    let address = address(source, by_address);
    let envelope = Envelope {
        kind: frame.kind(),
        subscription: frame.subscription(),
        transaction: frame.transaction(),
        entity: text(frame.entity())?,
        trace: frame.trace(),
        call: if frame.is_call() { frame.call() } else { 0 },
    };
    let mut call = Vec::with_capacity(frame.bytes().len() + address.len());
    Heads::new(source, &address).ok()?.encode(&mut call, &envelope, frame.payload().len()).ok()?;
    call.extend_from_slice(frame.payload());
    let call = Payload::from(call);
    Some(Arrived { head: Head::read_own(&call).ok()?, call, request: None, delivery: None })
}

/// Where replies to a message go: to its sender by name, and if that is not known here, by address.
fn address(source: &str, by_address: &str) -> String {
    let mut places: Vec<&str> = vec![source, by_address];
    places.dedup();
    places.retain(|place| check_place(place).is_ok());
    if places.is_empty() { String::new() } else { format!("rmr://{}", places.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_go_to_the_name_and_then_to_the_address() {
        for (source, by_address, expected) in [
            ("app:4560", "10.0.0.1:4560", "rmr://app:4560,10.0.0.1:4560"),
            ("app:4560", "app:4560", "rmr://app:4560"),
            ("app", "[::1]:4560", "rmr://[::1]:4560"),
            ("app:4560", "", "rmr://app:4560"),
            ("", "", ""),
            ("a,b:1", "app:0", ""),
        ] {
            assert_eq!(address(source, by_address), expected);
        }
    }
}

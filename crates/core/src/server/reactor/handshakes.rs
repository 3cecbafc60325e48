//! The server's listeners, and the handshakes of clients that are not connected yet.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::fault::contained;
use nearcall_transport::{Arrived, Awaits, Listener, Options, is_end_of_clients};
use nearcall_wire::Welcome;
use rustix::event::epoll::EventFlags;

use crate::server::connection::ServerConnection;
use crate::server::shared::Shared;
use crate::server::shared::mailbox::News;

/// How long no client is accepted after the system ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many clients one listener accepts before other descriptors have their turn.
const ACCEPTED_AT_ONCE: usize = 8;
/// The most handshakes under way. For one more the oldest is dropped.
const MOST_HANDSHAKES: usize = 1024;

/// How long handshakes may still take when the server stops.
const LEFT_TIME: Duration = Duration::from_millis(500);

/// All listeners and handshakes of a server.
pub(in crate::server) struct Handshakes {
    shared: Arc<Shared>,
    options: Options,
    /// What the server tells each client about itself.
    welcome: Welcome,
    last_token: u64,
    listeners: HashMap<u64, Listener>,
    /// By token: the oldest is the first.
    pending: BTreeMap<u64, Pending>,
    /// A listener has ended by itself.
    ended: bool,
}

/// A client whose handshake is under way.
struct Pending {
    client: Arrived,
    /// The URL that the client has connected to.
    url: Arc<str>,
}

impl Handshakes {
    /// The poller's tokens up to `last_token` are in use for other things.
    pub(in crate::server) fn new(options: Options, welcome: Welcome, shared: Arc<Shared>, last_token: u64) -> Self {
        Self { shared, options, welcome, last_token, listeners: HashMap::new(), pending: BTreeMap::new(), ended: false }
    }

    /// A token of the poller's that is not in use.
    pub(super) fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    pub(in crate::server) fn listen(&mut self, listener: Listener) -> io::Result<()> {
        let token = self.token();
        self.shared.watch(listener.signal(), token, EventFlags::IN)?;
        self.listeners.insert(token, listener);
        Ok(())
    }

    /// Closes all listeners, with their socket files. Handshakes under way have a moment to end: a client that is told
    /// goodbye then goes elsewhere at once, and one that is hung up on cannot know whether it may.
    pub(in crate::server) fn stop(&mut self) {
        self.ended = false;
        self.listeners.clear();
        let end = Instant::now() + LEFT_TIME;
        self.pending.keys().for_each(|&token| self.shared.mailbox.tell_at(end, token, News::Due));
    }

    /// Drops the handshakes under way.
    pub(in crate::server) fn close(&mut self) {
        self.stop();
        self.pending.clear();
    }

    /// Whether no handshake is under way.
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether every listener has ended by itself, and no handshake is under way: no client will come any more.
    pub(in crate::server) fn is_over(&self) -> bool {
        self.ended && self.listeners.is_empty() && self.pending.is_empty()
    }

    /// Handles an event of the poller. Returns the clients whose handshakes are complete now.
    pub(in crate::server) fn handle(&mut self, token: u64) -> Vec<Arc<ServerConnection>> {
        let mut new_clients = Vec::new();
        if self.listeners.contains_key(&token) {
            self.accept(token, &mut new_clients);
        } else {
            new_clients.extend(self.greet(token));
        }
        new_clients
    }

    fn accept(&mut self, listener: u64, new_clients: &mut Vec<Arc<ServerConnection>>) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listeners[&listener].accept() {
                Ok(Some(client)) => {
                    let token = self.token();
                    let url = Arc::clone(self.listeners[&listener].shown());
                    if self.shared.watch(client.opening.signal(), token, EventFlags::IN).is_err() {
                        continue;
                    }
                    if self.pending.len() >= MOST_HANDSHAKES {
                        let oldest = self.pending.first_key_value().map(|(&token, _)| token);
                        oldest.and_then(|token| self.take_out(token));
                    }
                    self.pending.insert(token, Pending { client, url });
                    self.shared.mailbox.tell_at(Instant::now() + self.options.handshake, token, News::Due);
                    // The client's hello is most likely here already.
                    new_clients.extend(self.greet(token));
                }
                Ok(None) => return,
                Err(error) if is_end_of_clients(&error) => {
                    if let Some(listener) = self.listeners.remove(&listener) {
                        self.shared.unwatch(listener.signal());
                    }
                    self.ended = true;
                    return;
                }
                Err(error) => {
                    self.shared.notify(true, format!("cannot accept a client: {error}; trying again in a moment"));
                    // The listener stays readable: without a pause this would be a busy loop.
                    for listener in self.listeners.values() {
                        self.shared.unwatch(listener.signal());
                    }
                    self.shared.mailbox.tell_at(Instant::now() + ACCEPT_PAUSE, listener, News::Due);
                    return;
                }
            }
        }
        // More clients may wait. A poller reports the listener again.
        if self.listeners[&listener].signal().fd().is_none() {
            self.shared.mailbox.tell(listener, News::Look);
        }
    }

    /// Goes on with a handshake. A panic there ends it: the clients accepted before are not lost with it.
    fn greet(&mut self, token: u64) -> Option<Arc<ServerConnection>> {
        contained(|| self.advance(token)).unwrap_or_else(|fault| {
            self.shared.notify(true, format!("dropped a client in its handshake: {fault}"));
            self.take_out(token);
            None
        })
    }

    fn take_out(&mut self, token: u64) -> Option<Pending> {
        self.shared.mailbox.cancel(token, News::Due);
        self.pending.remove(&token)
    }

    fn advance(&mut self, token: u64) -> Option<Arc<ServerConnection>> {
        let opening = &mut self.pending.get_mut(&token)?.client.opening;
        let greeted = opening.advance(&self.welcome, &self.options);
        if let Ok(false) = greeted {
            let Awaits { arrivals, room } = opening.awaits();
            let mut events = EventFlags::empty();
            // What the client sends although it is to send nothing must not keep this thread awake.
            events.set(EventFlags::IN, arrivals);
            events.set(EventFlags::OUT, room);
            // If this fails, the handshake runs into its deadline.
            let _ = self.shared.rewatch(opening.signal(), token, events);
            return None;
        }
        let Pending { client: Arrived { opening, permit }, url } = self.take_out(token)?;
        let peer = opening.peer().clone();
        match greeted {
            Ok(_) => {
                self.shared.unwatch(opening.signal());
                let link = opening.into_link(&self.options)?;
                return Some(ServerConnection::new(&self.shared, token, link, permit, url));
            }
            Err(Some(why)) => {
                opening.reject(&why, false);
                self.shared.notify(false, format!("turned away {peer}: {why}"));
            }
            Err(None) => {}
        }
        None
    }

    /// A time has come: listens again after a pause, or turns away a client whose handshake takes too long.
    pub(super) fn see_to(&mut self, token: u64) {
        if self.listeners.contains_key(&token) {
            for (&token, listener) in &self.listeners {
                let _ = self.shared.watch(listener.signal(), token, EventFlags::IN);
            }
        }
        if let Some(Pending { client: Arrived { opening, .. }, .. }) = self.pending.remove(&token)
            && !self.shared.is_stopping()
        {
            let (peer, why) = (opening.peer().clone(), "the handshake took too long");
            opening.reject(why, true);
            self.shared.notify(false, format!("turned away {peer}: {why}"));
        }
    }
}

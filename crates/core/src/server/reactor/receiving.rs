//! Receiving: what has come over the connections that are looked at, and what becomes of those that cannot be read from.

use std::sync::Arc;

use nearcall_transport::{Incoming, LinkError};

use super::{FRAMES_PER_POLL, PART, Reactor, flush};
use crate::client::Awaited;
use crate::server::inbound::{Inbound, Routed, StallReason};
use crate::server::request::Request;
use crate::server::work::Work;
use crate::sync::Ordering;

/// A reply that whoever receives waits for by itself.
pub(super) struct ExpectedReply<'a> {
    /// Over whose connection it is to come.
    client: Arc<Inbound<Request>>,
    awaited: &'a mut dyn Awaited,
    /// It has come, or need not be waited for any longer.
    pub(super) over: bool,
}

impl Reactor {
    /// A request that has just come.
    #[inline]
    pub(super) fn receive(&mut self) -> Option<Box<Request>> {
        // Neither sockets nor rings go before the other, likewise.
        self.sockets_turn = !self.sockets_turn && !self.readable.is_empty();
        if self.sockets_turn {
            self.receive_from_sockets().or_else(|| self.receive_from_memory())
        } else {
            self.receive_from_memory().or_else(|| self.receive_from_sockets())
        }
    }

    #[inline]
    fn receive_from_memory(&mut self) -> Option<Box<Request>> {
        let mut quiet = 0;
        while quiet < self.memory.len() && self.unpolled < FRAMES_PER_POLL {
            if self.cursor >= self.memory.len() {
                self.cursor = 0;
            }
            let client = &self.memory[self.cursor];
            let routed = match client.connection.link.try_receive_part() {
                Ok(Some(incoming)) => {
                    self.unpolled += weight(&incoming);
                    let beside = incoming.payload.lease().is_some();
                    let routed = client.route(&self.directory, incoming);
                    if beside {
                        // A bell may have been read along with the memory it lies in, and the poller does not tell of it.
                        flush(client, &mut self.resumable);
                    }
                    routed
                }
                // Relaxed: set and read by whoever holds this reactor.
                Ok(None) if client.hung_up.load(Ordering::Relaxed) => Err(LinkError::Closed),
                Err(LinkError::Unfinished) => {
                    quiet = 0;
                    self.unpolled += PART;
                    self.cursor += 1;
                    continue;
                }
                Ok(None) => {
                    quiet += 1;
                    self.cursor += 1;
                    continue;
                }
                Err(error) => Err(error),
            };
            quiet = 0;
            match routed {
                Ok(Routed::Request(request)) if client.begins_at_once() => {
                    // The next look starts with the next client: a busy one does not starve the others.
                    self.cursor += 1;
                    return Some(request);
                }
                Ok(Routed::Done) => {
                    self.cursor += 1;
                    self.routed += 1;
                }
                other => {
                    let client = self.memory.swap_remove(self.cursor);
                    if let Some(request) = self.set_aside(client, other) {
                        return Some(request);
                    }
                }
            }
        }
        None
    }

    #[inline]
    fn receive_from_sockets(&mut self) -> Option<Box<Request>> {
        while self.unpolled < FRAMES_PER_POLL
            && let Some(client) = self.readable.front()
        {
            let routed = match client.connection.link.try_receive_part() {
                Ok(Some(incoming)) => {
                    self.unpolled += weight(&incoming);
                    client.route(&self.directory, incoming)
                }
                Err(LinkError::Unfinished) => {
                    self.unpolled += PART;
                    client.connection.release();
                    self.readable.rotate_left(1);
                    continue;
                }
                // A ring whose client is gone is looked at here, too. Relaxed: as above.
                Ok(None) if client.hung_up.load(Ordering::Relaxed) => Err(LinkError::Closed),
                Ok(None) => {
                    client.connection.release();
                    client.listed.store(false, Ordering::Relaxed);
                    self.readable.pop_front();
                    continue;
                }
                Err(error) => Err(error),
            };
            match routed {
                Ok(Routed::Request(request)) if client.begins_at_once() => {
                    self.readable.rotate_left(1);
                    return Some(request);
                }
                Ok(Routed::Done) => {
                    self.readable.rotate_left(1);
                    self.routed += 1;
                }
                other => {
                    if let Some(client) = self.readable.pop_front()
                        && let Some(request) = self.set_aside(client, other)
                    {
                        return Some(request);
                    }
                }
            }
        }
        None
    }

    /// What is rare: a client that must wait, or is gone. It was taken off its list.
    #[cold]
    fn set_aside(&mut self, client: Arc<Inbound<Request>>, routed: Result<Routed, LinkError>) -> Option<Box<Request>> {
        let reason = match routed {
            Ok(Routed::Request(request)) if client.is_deferred_full() => StallReason::Deferred(request),
            Ok(Routed::Request(request)) => {
                let request = client.defer(request);
                self.list(client);
                return request;
            }
            Ok(Routed::Stall(reason)) => reason,
            Ok(Routed::Done) => {
                self.list(client);
                return None;
            }
            Err(LinkError::OverBudget) => StallReason::Budget,
            Err(error) => {
                self.drop_client(&client, &error);
                return None;
            }
        };
        client.connection.release();
        self.stalled.push(client, reason);
        None
    }

    /// Looks at a client from now on. It is marked as listed.
    pub(super) fn list(&mut self, client: Arc<Inbound<Request>>) {
        if client.connection.link.is_memory() {
            self.memory.push(client);
        } else {
            self.sockets_active = true;
            self.readable.push_back(client);
        }
    }

    /// A reply is to come over the connection of that token: it is looked at from now on. `None` if it cannot be, or not before
    /// what came earlier is settled.
    pub(super) fn expect<'a>(&mut self, token: u64, awaited: &'a mut dyn Awaited) -> Option<ExpectedReply<'a>> {
        let client = Arc::clone(self.connections.get(&token)?);
        // Relaxed, all: set and read by whoever holds this reactor.
        if client.hung_up.load(Ordering::Relaxed) || self.stalled.has(&client) {
            return None;
        }
        if !client.connection.link.is_memory() {
            self.sockets_active = true;
        } else if !client.listed.swap(true, Ordering::Relaxed) {
            client.connection.link.disarm();
            self.list(Arc::clone(&client));
        }
        Some(ExpectedReply { client, awaited, over: false })
    }

    /// Looks at the connection over which a reply is to come, and at no other. A request that came instead.
    pub(super) fn look_for(&mut self, reply: &mut ExpectedReply<'_>) -> Option<Work> {
        let client = &reply.client;
        let routed = match client.connection.link.try_receive_part() {
            Ok(None) => return None,
            Ok(Some(incoming)) => {
                self.unpolled += weight(&incoming);
                if incoming.payload.lease().is_some() {
                    // As in `receive_from_memory`.
                    flush(client, &mut self.resumable);
                }
                self.look_again(client);
                if !client.connection.is_called_by(&incoming) {
                    reply.over = reply.awaited.take_in(&mut Some(incoming));
                    return None;
                }
                client.route(&self.directory, incoming)
            }
            Err(LinkError::Unfinished) => {
                self.unpolled += PART;
                self.look_again(client);
                return None;
            }
            Err(error) => Err(error),
        };
        match routed {
            Ok(Routed::Request(request)) if client.begins_at_once() => Some(Work::Call(request)),
            Ok(Routed::Done) => {
                self.routed += 1;
                None
            }
            other => {
                let client = Arc::clone(client);
                self.unlist(&client);
                self.set_aside(client, other).map(Work::Call)
            }
        }
    }

    /// More may be here of what was read from a client: the poller does not tell of it again.
    #[inline]
    fn look_again(&mut self, client: &Arc<Inbound<Request>>) {
        // Relaxed: see `expect`.
        if !client.listed.load(Ordering::Relaxed) {
            client.listed.store(true, Ordering::Relaxed);
            self.list(Arc::clone(client));
        }
    }

    /// Takes a client off the list that it is on, if it is. It stays marked.
    #[cold]
    fn unlist(&mut self, client: &Arc<Inbound<Request>>) {
        // Relaxed: see `expect`.
        client.listed.store(true, Ordering::Relaxed);
        self.memory.retain(|other| !Arc::ptr_eq(other, client));
        self.readable.retain(|other| !Arc::ptr_eq(other, client));
    }
}

/// What a frame counts: its route takes longer the longer it is.
fn weight(incoming: &Incoming) -> u32 {
    1 + (incoming.payload.copied().len() >> 12) as u32
}

//! Receiving: takes in frames from the connections on the reactor's lists, and sets aside the connections that cannot
//! be read from now.

use std::sync::Arc;
use std::time::Instant;

use nearcall_platform::fault::contained;
use nearcall_transport::{Incoming, LinkError};
use nearcall_wire::Metadata;

use super::parting::LEFT_TIME;
use super::readable::Readable;
use super::{FRAMES_PER_POLL, PART, Reactor};
use crate::client::Awaited;
use crate::server::handlers::directory::Directory;
use crate::server::handlers::work::Work;
use crate::server::inbound::request::Request;
use crate::server::inbound::{HUNG_UP, Inbound, LISTED, STALLED};
use crate::server::reactor::routing::{Routed, StallReason};
use crate::server::shared::mailbox::News;

/// A reply that the receiving thread itself waits for.
pub(in crate::server) struct ExpectedReply<'a> {
    /// The peer from which the reply is to come.
    client: Arc<Inbound<Request>>,
    awaited: &'a mut dyn Awaited,
    /// The reply has come, or the thread need not wait any longer.
    pub(super) over: bool,
}

impl ExpectedReply<'_> {
    /// Whether a look at the connection may find the reply. A hint, as `Wait::may_have_more`.
    #[inline]
    pub(super) fn may_come(&self) -> bool {
        let connection = &self.client.connection;
        !connection.looking_is_cheap() || self.client.may_have_more()
    }
}

impl Reactor {
    /// A request that has just come.
    #[inline]
    pub(super) fn receive(&mut self) -> Option<Box<Request>> {
        // Sockets and rings take turns, so that neither kind keeps the other waiting.
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
            let taken = take_from(&self.memory[self.cursor], &self.directory, &mut self.unpolled, None);
            quiet = if matches!(taken, Looked::Nothing) { quiet + 1 } else { 0 };
            if let Looked::Aside(outcome) = taken {
                let client = self.memory.swap_remove(self.cursor);
                if let Some(request) = self.set_aside(&client, outcome) {
                    return Some(request);
                }
                continue;
            }
            // The next look starts with the next client, so that a busy client does not starve the others.
            self.cursor += 1;
            match taken {
                Looked::Request(request) => return Some(request),
                Looked::Done => self.routed += 1,
                Looked::Nothing | Looked::Part | Looked::Aside(_) => {}
            }
        }
        None
    }

    #[inline]
    fn receive_from_sockets(&mut self) -> Option<Box<Request>> {
        while self.unpolled < FRAMES_PER_POLL
            && let Some(turn) = self.readable.take()
        {
            let client = &turn.client;
            let mut taken = take_from(client, &self.directory, &mut self.unpolled, None);
            if matches!(taken, Looked::Nothing | Looked::Part)
                && let Err(fault) = contained(|| client.connection.release())
            {
                taken = Looked::Aside(Err(fault.into()));
            }
            match taken {
                Looked::Nothing => client.marks.clear(LISTED),
                Looked::Part => self.readable.push(turn.client),
                Looked::Request(request) => {
                    self.readable.push_again(turn);
                    return Some(request);
                }
                Looked::Done => {
                    self.readable.push_again(turn);
                    self.routed += 1;
                }
                Looked::Aside(outcome) => {
                    if let Some(request) = self.set_aside(client, outcome) {
                        return Some(request);
                    }
                }
            }
        }
        None
    }

    /// Handles the rare outcomes: a client that must wait, or is gone. The caller has taken the client off its list.
    #[cold]
    fn set_aside(&mut self, client: &Arc<Inbound<Request>>, routed: Result<Routed, LinkError>) -> Option<Box<Request>> {
        contained(|| self.put_aside(client, routed)).unwrap_or_else(|fault| {
            self.drop_client(client, &fault.into());
            None
        })
    }

    fn put_aside(&mut self, client: &Arc<Inbound<Request>>, routed: Result<Routed, LinkError>) -> Option<Box<Request>> {
        let reason = match routed {
            Ok(Routed::Request(request)) => {
                let request = client.defer(request);
                if request.is_some() || !client.deferred.is_full() {
                    self.list(Arc::clone(client));
                    return request;
                }
                StallReason::NotReading
            }
            Ok(Routed::Stall(reason)) => reason,
            Ok(Routed::Done) => {
                self.list(Arc::clone(client));
                return None;
            }
            Err(LinkError::OverBudget) => {
                if client.marks.has(HUNG_UP) {
                    self.shared.mailbox.tell_at(Instant::now() + LEFT_TIME, client.connection.token(), News::Left);
                }
                StallReason::Budget
            }
            Err(error) => {
                self.drop_client(client, &error);
                return None;
            }
        };
        client.connection.release();
        // A thread that spins for a reply over this connection must not read on.
        self.routed += 1;
        self.stalled.push(Arc::clone(client), reason);
        None
    }

    /// Looks at a client from now on. The caller has marked the client as listed.
    pub(super) fn list(&mut self, client: Arc<Inbound<Request>>) {
        self.list_with(Readable::push, client);
    }

    /// The same, for a client that had nothing to read until now.
    pub(super) fn list_new(&mut self, client: Arc<Inbound<Request>>) {
        self.list_with(Readable::push_new, client);
    }

    #[inline]
    fn list_with(&mut self, push: fn(&mut Readable, Arc<Inbound<Request>>), client: Arc<Inbound<Request>>) {
        if client.connection.looking_is_cheap() {
            self.memory.push(client);
        } else {
            self.sockets_active = true;
            push(&mut self.readable, client);
        }
    }

    /// A reply is to come over the connection with this token: looks at the connection from now on. `None` if the
    /// connection is gone, or stalled by an earlier frame.
    pub(super) fn expect<'a>(&mut self, token: u64, awaited: &'a mut dyn Awaited) -> Option<ExpectedReply<'a>> {
        let client = Arc::clone(self.connections.get(&token)?);
        if client.marks.has(HUNG_UP | STALLED) {
            return None;
        }
        if !client.connection.looking_is_cheap() {
            self.sockets_active = true;
        } else if client.marks.set(LISTED) {
            client.connection.stay_awake();
            self.list(Arc::clone(&client));
        }
        Some(ExpectedReply { client, awaited, over: false })
    }

    /// Looks only at the connection over which a reply is to come. Returns a request that came instead.
    pub(super) fn look_for(&mut self, reply: &mut ExpectedReply<'_>) -> Option<Work> {
        let ExpectedReply { client, awaited, over } = reply;
        let taken = take_from(client, &self.directory, &mut self.unpolled, Some((&mut **awaited, over)));
        if !matches!(taken, Looked::Nothing) && client.marks.set(LISTED) {
            // More frames may be here, and the poller does not report them again.
            self.list(Arc::clone(client));
        }
        match taken {
            Looked::Nothing | Looked::Part => None,
            Looked::Request(request) => Some(Work::of_call(request)),
            Looked::Done => {
                self.routed += 1;
                None
            }
            Looked::Aside(outcome) => {
                let client = Arc::clone(client);
                self.unlist(&client);
                self.set_aside(&client, outcome).map(Work::of_call)
            }
        }
    }

    /// Takes a client off its list, if it is on one. The client stays marked as listed.
    #[cold]
    pub(super) fn unlist(&mut self, client: &Arc<Inbound<Request>>) {
        client.marks.set(LISTED);
        self.memory.retain(|other| !Arc::ptr_eq(other, client));
        self.readable.remove(client);
    }
}

/// What came of a look at one connection.
enum Looked {
    Nothing,
    /// Something that is nobody's but the calling thread's: a part of a long frame, or a reply.
    Part,
    Request(Box<Request>),
    /// A frame was taken in, and that is all.
    Done,
    /// The client must wait, or is gone.
    Aside(Result<Routed, LinkError>),
}

/// Takes in what comes next from a client: a request that had to wait until the client reads, or a frame. A reply that the
/// calling thread waits for goes to `awaited`, with a slot for whether the wait is over. A panic ends the client's
/// connection, as an error does.
#[inline]
fn take_from(
    client: &Arc<Inbound<Request>>,
    directory: &Directory,
    unpolled: &mut u32,
    awaited: Option<(&mut dyn Awaited, &mut bool)>,
) -> Looked {
    let taken = contained(|| {
        if !client.deferred.is_empty()
            && let Some(request) = client.deferred.pop(|| client.connection.has_room())
        {
            *unpolled += 1;
            return Ok(Looked::Request(request));
        }
        let mut slot = None;
        client.connection.link.try_receive_part(&mut slot)?;
        let Some(incoming) = &slot else { return Ok(Looked::Nothing) };
        *unpolled += weight(incoming);
        if incoming.payload.lease().is_some() {
            // The payload's memory came over the socket that also carries the bell. The bell may have been read with it:
            // then the poller does not report the bell.
            client.flush();
        }
        if let Some((awaited, over)) = awaited
            && !client.connection.is_called_by(incoming)
        {
            *over = awaited.take_in(&mut slot);
            return Ok(Looked::Part);
        }
        Ok(match client.route(directory, &mut slot)? {
            Routed::Request(request) if client.connection.has_room() && client.deferred.is_empty() => {
                Looked::Request(request)
            }
            Routed::Done => Looked::Done,
            other => Looked::Aside(Ok(other)),
        })
    });
    match taken.unwrap_or_else(|fault| Err(fault.into())) {
        // The ring of a client that has hung up is still looked at.
        Ok(Looked::Nothing) if client.marks.has(HUNG_UP) => Looked::Aside(Err(LinkError::Closed)),
        Ok(taken) => taken,
        Err(LinkError::Unfinished) => {
            *unpolled += PART;
            Looked::Part
        }
        Err(error) => Looked::Aside(Err(error)),
    }
}

/// What a frame counts towards [`FRAMES_PER_POLL`]: a longer frame takes longer, and one with much metadata, too.
fn weight(incoming: &Incoming) -> u32 {
    let metadata = incoming.head.metadata().map_or(0, Metadata::held);
    1 + (incoming.payload.copied().len() >> 12) as u32 + (metadata >> 10) as u32
}

//! The clients over sockets that have something to read, and their turns.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::server::inbound::Inbound;
use crate::server::inbound::request::Request;

/// Clients that had nothing to read until now take turns with those that have had more to read all the time. So
/// whoever calls now and then waits for one call of one of these, and not for one call of each of them; and however
/// many come anew, the others have every second turn. After its first frame a client is one of the others, unless that
/// seems to have been all: then it is looked at again at once. Who calls, waits for the reply, and calls again would else
/// be found in the circle of the others each time, and never be quiet.
///
/// The idea is that of the new and the old flows of fair queueing in routers (`FQ-CoDel`, RFC 8290, section 4.2).
#[derive(Default)]
pub(super) struct Readable {
    new: VecDeque<Arc<Inbound<Request>>>,
    others: VecDeque<Arc<Inbound<Request>>>,
    /// The client of which something was read last, if that seems to have been all. It is looked at once more.
    last: Option<Arc<Inbound<Request>>>,
    /// The next turn is one of the others'.
    others_next: bool,
}

/// A client's turn: a frame of it is read, if one is here.
pub(super) struct ReadTurn {
    pub(super) client: Arc<Inbound<Request>>,
    /// In its turn before, a moment ago, it seemed to have nothing more.
    is_second: bool,
}

impl Readable {
    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.others.is_empty() && self.last.is_none()
    }

    /// Adds a client that had nothing to read until now.
    pub(super) fn push_new(&mut self, client: Arc<Inbound<Request>>) {
        self.new.push_back(client);
    }

    /// Adds a client behind all others.
    #[inline]
    pub(super) fn push(&mut self, client: Arc<Inbound<Request>>) {
        self.others.push_back(client);
    }

    /// Adds a client again of which a frame was read in its turn.
    #[inline]
    pub(super) fn push_again(&mut self, turn: ReadTurn) {
        let ReadTurn { client, is_second } = turn;
        if !is_second && !client.may_have_more() {
            self.last = Some(client);
        } else {
            self.others.push_back(client);
        }
    }

    /// Takes out the client whose turn it is.
    #[inline]
    pub(super) fn take(&mut self) -> Option<ReadTurn> {
        if let Some(client) = self.last.take() {
            return Some(ReadTurn { client, is_second: true });
        }
        self.others_next = !self.others_next;
        let (first, second) =
            if self.others_next { (&mut self.new, &mut self.others) } else { (&mut self.others, &mut self.new) };
        let client = first.pop_front().or_else(|| second.pop_front())?;
        Some(ReadTurn { client, is_second: false })
    }

    /// Takes out this client, if it is here.
    pub(super) fn remove(&mut self, client: &Arc<Inbound<Request>>) {
        for clients in [&mut self.new, &mut self.others] {
            clients.retain(|other| !Arc::ptr_eq(other, client));
        }
        self.last.take_if(|last| Arc::ptr_eq(last, client));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Inbound<Request>>> {
        self.new.iter().chain(&self.others).chain(&self.last)
    }
}

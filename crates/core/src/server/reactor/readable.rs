//! The clients over sockets that have something to read, and their turns.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::server::inbound::Inbound;
use crate::server::request::Request;

/// Clients that had nothing to read until now take turns with those that have had more to read all the time. So
/// whoever calls now and then waits for one call of one of these, and not for one call of each of them; and however
/// many come anew, the others have every second turn. After its first frame a client is one of the others.
///
/// The idea is that of the new and the old flows of fair queueing in routers (`FQ-CoDel`, RFC 8290, section 4.2).
#[derive(Default)]
pub(super) struct Readable {
    new: VecDeque<Arc<Inbound<Request>>>,
    others: VecDeque<Arc<Inbound<Request>>>,
    /// The next turn is one of the others'.
    others_next: bool,
}

impl Readable {
    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.others.is_empty()
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

    /// Takes out the client whose turn it is.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Arc<Inbound<Request>>> {
        self.others_next = !self.others_next;
        let (first, second) =
            if self.others_next { (&mut self.new, &mut self.others) } else { (&mut self.others, &mut self.new) };
        first.pop_front().or_else(|| second.pop_front())
    }

    /// Takes out this client, if it is here.
    pub(super) fn remove(&mut self, client: &Arc<Inbound<Request>>) {
        for clients in [&mut self.new, &mut self.others] {
            clients.retain(|other| !Arc::ptr_eq(other, client));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Inbound<Request>>> {
        self.new.iter().chain(&self.others)
    }

    pub(super) fn clear(&mut self) {
        self.new.clear();
        self.others.clear();
    }
}

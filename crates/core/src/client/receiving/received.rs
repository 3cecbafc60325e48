//! Connections on which a server of this process receives in place of the callers: the half of a server's connection
//! that calls the client, and a client whose server may call it. Their callers wait as the server's own handlers do.

use std::sync::Arc;

use nearcall_transport::{Body, CallKey, Incoming, Link, Outgoing, Room};
use nearcall_wire::Kind;

use crate::client::connection::{Connection, Inner, Receiver};
use crate::client::table::Woken;
use crate::client::table::{CallId, NO_CALL};
use crate::exports::{Exports, OnRelease};
use crate::sync::Ordering;

/// A server of this process that receives on clients' connections, so that the other side can call this process's
/// objects.
pub trait Adopter: Send + Sync {
    /// Receives for a connection from now on. Never waits.
    fn adopt(self: Arc<Self>, connection: &Arc<Connection>);
}

impl Connection {
    /// Leaves receiving to a server, and asks a thread that receives now to stop. Returns whether no server did so
    /// before.
    pub(crate) fn use_receiver(&self, receiver: Arc<dyn Receiver>) -> bool {
        let Some(inner) = self.inner() else { return false };
        let first = inner.received.set(receiver).is_ok();
        if first && inner.receiving.is_led() {
            // The PONG wakes that thread. If the PING cannot be sent, the connection is lost, which wakes it, too.
            let ping = Outgoing::new(Kind::Ping, Body::Whole(&[]));
            let _ = inner.link.send(CallKey { number: NO_CALL, side: 0 }, &ping, Room::Later);
        }
        first
    }

    /// To be called by the server: whether no thread receives here any more, nor ever will.
    pub(crate) fn leave_to_server(&self) -> bool {
        match self.inner().and_then(|inner| inner.receiving.try_lead()) {
            Some(lead) => {
                std::mem::forget(lead);
                true
            }
            None => false,
        }
    }

    /// Takes in the frame in a slot, which a server has received.
    pub(crate) fn take_in(&self, slot: &mut Option<Incoming>) {
        if let Some(inner) = self.inner() {
            inner.take_in_for(slot, None);
        }
    }

    /// The link, and the objects given over it, for the server's half of the connection.
    pub(crate) fn shared(&self) -> Option<(Arc<dyn Link>, Arc<Exports>)> {
        self.inner().map(|inner| (Arc::clone(&inner.link), Arc::clone(&inner.exports)))
    }

    /// From now on the other side may call objects that are given to it, at most `most` at a time. Those that it
    /// releases go to `releases`.
    pub(crate) fn open_exports(&self, most: usize, releases: Arc<dyn OnRelease>) {
        if let Some(inner) = self.inner() {
            inner.exports.open(most, releases);
        }
    }
}

impl Inner {
    /// Takes in a frame that a server has received. Whether `arrived` now holds an event for the call `mine`; any other
    /// event is taken.
    #[inline]
    pub(super) fn take_in_for(&self, arrived: &mut Option<Incoming>, mine: Option<CallId>) -> bool {
        let mut woken = Woken::default();
        let is_mine = self.deliver(arrived, mine, &mut woken);
        if !woken.is_empty()
            && let Some(receiver) = self.received.get()
        {
            receiver.note_woken();
        }
        drop(woken);
        // Relaxed: set before a call of an event loop is in the table. This thread has taken the table's lock since.
        if self.in_loop.load(Ordering::Relaxed) && self.table.lock().tells_loop() {
            self.tell_loop();
        }
        is_mine
    }
}

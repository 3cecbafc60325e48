//! What a client gave in messages that nobody reads here.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use nearcall_platform::lock::Mutex;
use nearcall_transport::{Body, CallKey, Incoming, Outgoing, Room, Sent};
use nearcall_wire::Kind;

use super::ServerConnection;
use crate::given::{given_in, release_payloads};
use crate::server::Server;
use crate::sync::{AtomicBool, Ordering};

impl ServerConnection {
    /// Tells the client that what it gave so is not held here. Never waits.
    pub fn release_given(&self, server: &Server, given: &[NonZeroU64]) {
        for payload in release_payloads(given) {
            let release = Outgoing::new(Kind::Release, Body::Whole(&payload));
            // It belongs to no call, so that it has no side. If it cannot be sent, the end of the connection releases all.
            if self.link.send(CallKey { number: 0, side: 0 }, &release, Room::Later) == Ok(Sent::Queued) {
                self.note_queued_frame(server);
            }
        }
    }

    /// A call has ended here in whose items references may be given, and some may still come.
    pub(in crate::server) fn note_ended(&self, call: u32) {
        let mut ended = self.ended_giving.calls.lock();
        if ended.len() >= MOST_ENDED {
            ended.pop_front();
        }
        ended.push_back(call);
    }

    /// An item came for a call that is not under way: if one has ended here that it may be of, what is given in it nobody will
    /// read.
    pub(super) fn let_go_of_item(&self, server: &Server, item: &Incoming) {
        if self.ended_giving.is_of(item.head.call) {
            self.release_given(server, &given_in(&item.head, &item.payload));
        }
    }
}

/// Calls that have ended here, by the client's numbers, in whose items references may still be given. What looks like a
/// reference in an item of another call may be bytes of its user's.
#[derive(Debug, Default)]
pub(super) struct EndedGiving {
    calls: Mutex<VecDeque<u32>>,
    /// There was such a call.
    any: AtomicBool,
}

/// So many are remembered; older ones are forgotten, and what is given in their items counts until the connection ends.
const MOST_ENDED: usize = 1024;

impl EndedGiving {
    /// A call begins: what comes with its number is its own from now on.
    #[inline]
    pub(super) fn begin(&self, call: u32, gives: bool) {
        // Relaxed: frames are taken in one after the other.
        if gives {
            self.any.store(true, Ordering::Relaxed);
        }
        if self.any.load(Ordering::Relaxed) {
            self.calls.lock().retain(|&ended| ended != call);
        }
    }

    fn is_of(&self, call: u32) -> bool {
        self.any.load(Ordering::Relaxed) && self.calls.lock().contains(&call)
    }
}

//! Buffers of this side that the peer has been shown, and those that it is lent now.

use std::sync::{Arc, Weak};

use nearcall_platform::fork::Owner;
use nearcall_platform::lock::InnerMutex;
use nearcall_platform::peer_socket::PeerSocket;
use nearcall_ring::Segment;

use super::socket::show;
use crate::errors::LinkError;
use crate::limits::budget::{Account, KeptBytes};
use crate::memory::{Buffer, BufferPool, Lender, Memory, watch_lender};

/// Bytes that may be lent to one peer at a time, beside two of its longest messages.
const LENT: u64 = 32 << 20;

/// What this side lends on one connection.
#[derive(Debug)]
pub(super) struct Lending {
    segment: Segment,
    account: Arc<Account>,
    /// The most buffers that the peer keeps track of.
    most: usize,
    most_bytes: u64,
    /// Memory that only this peer has seen waits here for its next use, if the peer is a client; `None` if it is a
    /// server.
    pool: Option<Arc<BufferPool>>,
    owner: Owner,
    state: InnerMutex<LendingState>,
}

#[derive(Debug, Default)]
struct LendingState {
    /// The places of buffers, by their numbers modulo [`Segment::BUFFERS`].
    shown: Vec<Shown>,
    lent_bytes: u64,
    /// Counts loans: the latest loan has the highest count.
    clock: u64,
    watched: bool,
    closed: bool,
}

/// Memory that the peer knows by this number.
#[derive(Debug)]
struct Shown {
    memory: Weak<Memory>,
    number: u32,
    /// Counts all loans of buffers at this place. Wraps around.
    loans: u32,
    last: u64,
    /// Present while the peer has not given all loans back.
    lent: Option<Lent>,
}

#[derive(Debug)]
struct Lent {
    buffer: Arc<Buffer>,
    _kept: KeptBytes,
}

/// A loan that the peer has not been told of. Dropping it takes the loan back, unless it is [kept](Loan::keep).
#[derive(Debug)]
pub(super) struct Loan<'a> {
    lending: &'a Lending,
    pub(super) number: u32,
}

impl Loan<'_> {
    /// The note that names the loan is in the ring.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut state = self.lending.state.lock();
        let shown = &mut state.shown[index_of(self.number)];
        shown.loans = shown.loans.wrapping_sub(1);
        let back = state.take_given_back(&self.lending.segment);
        drop(state);
        drop(back);
    }
}

impl LendingState {
    /// Takes the buffers that the peer has given back. Drop them without the lock: memory may have to be unmapped.
    fn take_given_back(&mut self, segment: &Segment) -> Vec<Arc<Buffer>> {
        let mut back: Vec<Arc<Buffer>> = Vec::new();
        for shown in &mut self.shown {
            if shown.lent.is_some() && segment.given_back(shown.number) == shown.loans {
                back.extend(shown.lent.take().map(|lent| lent.buffer));
            }
        }
        let bytes: u64 = back.iter().map(|buffer| buffer.memory().len() as u64).sum();
        self.lent_bytes -= bytes;
        back
    }

    /// The place of this memory, if the peer knows it.
    fn index_of(&self, memory: &Arc<Memory>) -> Option<usize> {
        self.shown.iter().position(|shown| shown.memory.as_ptr() == Arc::as_ptr(memory))
    }

    /// A place for memory that the peer is about to be shown: a new one, or that of idle memory, preferably memory that
    /// is gone, else the one lent longest ago. The number of a reused place was not used for long.
    fn make_place(&mut self, most: usize) -> Option<usize> {
        if self.shown.len() < most {
            let number = self.shown.len() as u32;
            self.shown.push(Shown { memory: Weak::new(), number, loans: 0, last: 0, lent: None });
            return Some(number as usize);
        }
        let idle = self.shown.iter().enumerate().filter(|(_, shown)| shown.lent.is_none());
        let (at, _) = idle.min_by_key(|(_, shown)| (shown.memory.strong_count() > 0, shown.last))?;
        let shown = &mut self.shown[at];
        shown.memory = Weak::new();
        shown.number = shown.number.wrapping_add(Segment::BUFFERS as u32);
        Some(at)
    }
}

/// The place of the buffer with this number.
fn index_of(number: u32) -> usize {
    number as usize % Segment::BUFFERS
}

impl Lending {
    /// `most` is how many buffers the peer keeps track of, `longest` its longest message, `client` whether the peer is
    /// a client.
    pub(super) fn new(segment: Segment, account: Arc<Account>, most: u32, longest: u64, client: bool) -> Arc<Self> {
        Arc::new(Self {
            segment,
            account,
            most: Segment::BUFFERS.min(most as usize),
            most_bytes: longest.saturating_mul(2).saturating_add(LENT),
            pool: client.then(BufferPool::new),
            owner: Owner::this_process(),
            state: InnerMutex::default(),
        })
    }

    /// Whether the peer can be lent buffers.
    pub(super) fn is_possible(&self) -> bool {
        self.most > 0
    }

    /// The pool of memory that only this peer has seen.
    pub(super) fn pool(&self) -> Option<&Arc<BufferPool>> {
        self.pool.as_ref()
    }

    /// Lends a buffer to the peer for one message, and shows it the memory if it does not know it. `None` if the bytes
    /// have to be copied: too much is lent already, or there is no room in the socket.
    pub(super) fn lend(
        self: &Arc<Self>,
        buffer: &Arc<Buffer>,
        socket: &PeerSocket,
    ) -> Result<Option<Loan<'_>>, LinkError> {
        let memory = buffer.memory();
        let mut state = self.state.lock();
        if state.closed {
            return Err(LinkError::Closed);
        }
        let back = state.take_given_back(&self.segment);
        let number = self.lend_locked(&mut state, buffer, memory, socket);
        let fresh = matches!(number, Ok(Some(_))) && !std::mem::replace(&mut state.watched, true);
        drop(state);
        drop(back);
        if fresh {
            let own: Arc<dyn Lender> = Arc::clone(self) as _;
            watch_lender(Arc::downgrade(&own));
        }
        Ok(number?.map(|number| Loan { lending: self, number }))
    }

    fn lend_locked(
        &self,
        state: &mut LendingState,
        buffer: &Arc<Buffer>,
        memory: &Arc<Memory>,
        socket: &PeerSocket,
    ) -> Result<Option<u32>, LinkError> {
        let size = memory.len() as u64;
        let known = state.index_of(memory);
        let is_lent = known.is_some_and(|at| state.shown[at].lent.is_some());
        // Not charged like messages: a peer that keeps much must still be able to send.
        let kept = if is_lent {
            None
        } else {
            if state.lent_bytes + size > self.most_bytes {
                return Ok(None);
            }
            let Some(kept) = KeptBytes::of(&self.account, memory.len()) else { return Ok(None) };
            Some(kept)
        };
        let at = if let Some(at) = known {
            at
        } else {
            let Some(at) = state.make_place(self.most) else { return Ok(None) };
            // Noted before the peer can look at the memory.
            memory.show(self.pool.as_ref());
            if !show(socket, state.shown[at].number, size, memory.fd())? {
                return Ok(None);
            }
            state.shown[at].memory = Arc::downgrade(memory);
            at
        };
        state.clock += 1;
        let clock = state.clock;
        let shown = &mut state.shown[at];
        shown.loans = shown.loans.wrapping_add(1);
        shown.last = clock;
        if let Some(kept) = kept {
            shown.lent = Some(Lent { buffer: Arc::clone(buffer), _kept: kept });
            state.lent_bytes += size;
        }
        Ok(Some(shown.number))
    }

    /// The buffer of which the peer hands back `len` bytes from `offset` in a message. Checks that it is lent to the
    /// peer.
    pub(super) fn handed_back(&self, number: u32, offset: u64, len: u64) -> Result<Arc<Buffer>, LinkError> {
        let state = self.state.lock();
        let shown = state.shown.get(index_of(number)).filter(|shown| shown.number == number);
        let lent = shown.and_then(|shown| shown.lent.as_ref());
        let Some(Lent { buffer, .. }) = lent else {
            return Err(LinkError::Broken("the peer hands back a buffer that it does not have".into()));
        };
        if offset.checked_add(len).is_none_or(|end| end > buffer.memory().len() as u64) {
            return Err(LinkError::Broken("the peer hands back more of a buffer than there is".into()));
        }
        Ok(Arc::clone(buffer))
    }

    /// The connection has ended. The peer may look at buffers that it has not given back as long as it lives, so their
    /// memory is never used again.
    pub(super) fn close(&self) {
        if !self.owner.is_this_process() {
            return;
        }
        let mut state = self.state.lock();
        state.closed = true;
        let back = state.take_given_back(&self.segment);
        let never: Vec<_> = state.shown.iter_mut().filter_map(|shown| shown.lent.take()).collect();
        state.lent_bytes = 0;
        drop(state);
        for lent in &never {
            lent.buffer.memory().retire();
        }
        drop((back, never));
    }
}

impl Lender for Lending {
    fn take_back(&self) {
        if !self.owner.is_this_process() {
            return;
        }
        let back = self.state.lock().take_given_back(&self.segment);
        drop(back);
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.close();
    }
}

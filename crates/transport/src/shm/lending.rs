//! Buffers of this side that the peer has been shown, and those that are lent to it now.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use nearcall_platform::fork;
use nearcall_platform::lock::InnerMutex;
use nearcall_ring::Segment;

use super::socket::show;
use crate::budget::{Account, Kept};
use crate::errors::LinkError;
use crate::memory::{Buffer, BufferPool, Lender, Memory, watch_lender};

/// Bytes that may be lent to one peer at a time, beside two of its longest messages.
const LENT: u64 = 32 << 20;

/// What this side lends on one connection.
#[derive(Debug)]
pub(super) struct Lending {
    segment: Segment,
    account: Arc<Account>,
    /// Buffers that the peer keeps track of.
    most: usize,
    most_bytes: u64,
    /// Where what this client alone has seen waits to be used again; none for a server.
    pool: Option<Arc<BufferPool>>,
    generation: u32,
    state: InnerMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By their numbers, modulo the most there can be.
    shown: Vec<Shown>,
    lent_bytes: u64,
    /// Counts loans: what was lent last has the highest.
    clock: u64,
    watched: bool,
    closed: bool,
}

/// Memory that the peer knows by a number.
#[derive(Debug)]
struct Shown {
    memory: Weak<Memory>,
    number: u32,
    /// Loans ever of the buffers that were here; it wraps around.
    loans: u32,
    last: u64,
    /// Present while the peer has not given all loans back.
    lent: Option<Lent>,
}

#[derive(Debug)]
struct Lent {
    buffer: Arc<Buffer>,
    _kept: Kept,
}

/// A loan that the peer has not been told of: it is taken back unless it is [kept](Loan::keep).
#[derive(Debug)]
pub(super) struct Loan<'a> {
    lending: &'a Lending,
    pub(super) number: u32,
}

impl Loan<'_> {
    /// The note that names it is in the ring.
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

impl State {
    /// What the peer has given back. To be dropped without the lock: memory may have to be unmapped.
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

    /// Where the memory is, if the peer knows it.
    fn index_of(&self, memory: &Arc<Memory>) -> Option<usize> {
        self.shown.iter().position(|shown| shown.memory.as_ptr() == Arc::as_ptr(memory))
    }

    /// A place for memory that the peer is shown now: a fresh one, or that of what was not lent for longest. It has a number
    /// that was not used for long.
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

/// Where the buffer of a number is.
fn index_of(number: u32) -> usize {
    number as usize % Segment::BUFFERS
}

impl Lending {
    /// `most` is how many buffers the peer keeps track of, `longest` its longest message; `client`, whether it is one.
    pub(super) fn new(segment: Segment, account: Arc<Account>, most: u32, longest: u64, client: bool) -> Arc<Self> {
        Arc::new(Self {
            segment,
            account,
            most: Segment::BUFFERS.min(most as usize),
            most_bytes: longest.saturating_mul(2).saturating_add(LENT),
            pool: client.then(BufferPool::new),
            generation: fork::mark(),
            state: InnerMutex::default(),
        })
    }

    /// Whether the peer knows what to do with buffers.
    pub(super) fn is_possible(&self) -> bool {
        self.most > 0
    }

    /// The memory that was used for this peer alone.
    pub(super) fn pool(&self) -> Option<&Arc<BufferPool>> {
        self.pool.as_ref()
    }

    /// Lends a buffer to the peer for one message, and shows it the memory if need be; `None` if its bytes have to be
    /// copied: too much is lent already, or there is no room in the socket.
    pub(super) fn lend(
        self: &Arc<Self>,
        buffer: &Arc<Buffer>,
        socket: &OwnedFd,
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
        state: &mut State,
        buffer: &Arc<Buffer>,
        memory: &Arc<Memory>,
        socket: &OwnedFd,
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
            let Some(kept) = Kept::of(&self.account, memory.len()) else { return Ok(None) };
            Some(kept)
        };
        let at = if let Some(at) = known {
            at
        } else {
            let Some(at) = state.make_place(self.most) else { return Ok(None) };
            // Before the peer can look at it.
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

    /// A buffer that the peer hands back in a message: of what is lent to it, `len` bytes from `offset`.
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

    /// The connection has ended. What the peer has not given back it may look at as long as it lives.
    pub(super) fn close(&self) {
        if self.generation != fork::generation() {
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
        if self.generation != fork::generation() {
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

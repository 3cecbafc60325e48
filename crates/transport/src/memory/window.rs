//! Buffers of peers, mapped for reading, and the loans that this side owes for them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use nearcall_platform::fork::Owner;
use nearcall_platform::lock::InnerMutex;
use nearcall_ring::{Mapping, Segment};

use super::places::Registration;
use crate::errors::LinkError;
use crate::limits::budget::KeptBytes;

/// The loans that this side owes for one of the peer's buffers. They go back when nothing here holds any part of it.
#[derive(Debug)]
pub(crate) struct Debt {
    segment: Segment,
    /// The number of the connection.
    link: u64,
    number: u32,
    owner: Owner,
    state: InnerMutex<Owed>,
}

#[derive(Debug, Default)]
struct Owed {
    holders: u32,
    loans: u32,
}

/// Keeps one of the peer's buffers from going back while it lives.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Debt>);

impl Debt {
    /// For the buffer that the peer has shown under this number. `link` is the number of the connection.
    pub(crate) fn new(segment: Segment, link: u64, number: u32) -> Arc<Self> {
        Arc::new(Self { segment, link, number, owner: Owner::this_process(), state: InnerMutex::default() })
    }

    /// The number under which the peer has shown the buffer.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Notes that one more message with the buffer has arrived.
    pub(crate) fn borrow(self: &Arc<Self>) -> Hold {
        let mut owed = self.state.lock();
        owed.loans = owed.loans.wrapping_add(1);
        owed.holders += 1;
        Hold(Arc::clone(self))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Debt { segment, number, owner, state, .. } = &*self.0;
        if !owner.is_this_process() {
            // A forked child: the hold belongs to its parent.
            return;
        }
        let mut owed = state.lock();
        owed.holders -= 1;
        if owed.holders == 0 {
            segment.give_back(*number, std::mem::take(&mut owed.loans));
        }
    }
}

/// A buffer of the peer, or a part of one, mapped for reading.
#[derive(Debug)]
pub(crate) struct Window {
    // First: it must be gone before the mapping.
    _registration: Registration,
    mapping: Mapping,
    /// Where in the buffer the mapping begins.
    from: u64,
    debt: Arc<Debt>,
    /// Counts memory that stays mapped between messages.
    _kept: Option<KeptBytes>,
}

impl Window {
    /// Maps a part of a buffer.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn open(
        fd: &OwnedFd,
        from: u64,
        len: usize,
        debt: &Arc<Debt>,
        kept: Option<KeptBytes>,
    ) -> Result<Arc<Self>, LinkError> {
        let mapping = Mapping::open_shown(fd.as_fd(), from, len).map_err(|error| LinkError::no_memory(len, error))?;
        let start = mapping.address().as_ptr().addr();
        Ok(Arc::new_cyclic(|own: &Weak<Self>| Self {
            _registration: Registration::new(start, len, own.clone()),
            mapping,
            from,
            debt: Arc::clone(debt),
            _kept: kept,
        }))
    }

    /// Whether the mapping has `len` bytes of the buffer from `offset` on.
    pub(crate) fn shows(&self, offset: u64, len: u64) -> bool {
        offset >= self.from && offset + len <= self.from + self.mapping.len() as u64
    }

    /// Where in the buffer the mapping begins.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The buffer's number for the peer at the other end of connection `link`, and where in the buffer the address
    /// lies. `None` if the buffer belongs to another peer.
    pub(crate) fn place_at(&self, link: u64, address: usize) -> Option<(u32, u64)> {
        let inside = address - self.mapping.address().as_ptr().addr();
        (self.debt.link == link).then_some((self.debt.number, self.from + inside as u64))
    }

    /// Keeps the buffer from going back, unless it has gone back already.
    pub(crate) fn hold(&self) -> Option<Hold> {
        // Before the lock, which a thread of the parent may have held.
        if !self.debt.owner.is_this_process() {
            return None;
        }
        let mut owed = self.debt.state.lock();
        if owed.holders == 0 {
            return None;
        }
        owed.holders += 1;
        Some(Hold(Arc::clone(&self.debt)))
    }
}

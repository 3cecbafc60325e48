//! Memory of this process that can be shown to peers, and the pools in which it waits for its next use.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Weak};

use nearcall_platform::fork::{Owned, Owner};
use nearcall_platform::lock::InnerMutex;
use nearcall_platform::per_process::PerProcess;
use nearcall_ring::Mapping;

use super::lenders::ask_lenders;
use super::places::Registration;

/// Sizes are rounded up to eighths of a power of two, so that messages of about one length find the same memory.
const STEPS: usize = 8;
const PAGE: usize = 4096;
/// Bytes that one pool keeps for further uses. Beyond that, memory that has waited longest goes first.
const KEPT_BYTES: usize = 64 << 20;

/// Memory that can be shown to peers. It is used many times, once at a time.
#[derive(Debug)]
pub(crate) struct Memory {
    // First: it must be gone before the mapping.
    _registration: Registration,
    mapping: Mapping,
    fd: OwnedFd,
    owner: Owner,
    /// The pool that made it.
    home: Weak<BufferPool>,
    state: InnerMutex<BufferState>,
}

#[derive(Debug, Default)]
struct BufferState {
    current: Weak<Buffer>,
    seen: Seen,
}

/// The peers that have been shown a memory, and can look at it at any time. Only they may see its next uses.
#[derive(Debug, Default)]
enum Seen {
    #[default]
    Nobody,
    /// Only servers that this process connected to.
    Servers,
    /// One client of a server in this process.
    Client(Weak<BufferPool>),
    /// Several of these, or a peer that may look at the memory after its connection has ended.
    Others,
}

impl Memory {
    fn create(len: usize, home: &Arc<BufferPool>) -> io::Result<Arc<Self>> {
        let (mapping, fd) = Mapping::create_shown("nearcall-buffer", len)?;
        let (start, owner) = (mapping.address().as_ptr().addr(), Owner::this_process());
        Ok(Arc::new_cyclic(|own: &Weak<Self>| Self {
            _registration: Registration::new(start, len, own.clone()),
            mapping,
            fd,
            owner,
            home: Arc::downgrade(home),
            state: InnerMutex::default(),
        }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// The offset of an address in this memory.
    pub(crate) fn offset_of(&self, address: usize) -> usize {
        address - self.mapping.address().as_ptr().addr()
    }

    /// The buffer that uses this memory now, if it belongs to this process and not to its parent.
    pub(crate) fn current(&self) -> Option<Arc<Buffer>> {
        if self.is_inherited() { None } else { self.state.lock().current.upgrade() }
    }

    fn is_inherited(&self) -> bool {
        !self.owner.is_this_process()
    }

    /// Notes that the memory is being shown to a server, or to the client with this pool.
    pub(crate) fn show(&self, client: Option<&Arc<BufferPool>>) {
        let mut state = self.state.lock();
        state.seen = match (&state.seen, client) {
            (Seen::Nobody | Seen::Servers, None) => Seen::Servers,
            (Seen::Nobody, Some(pool)) => Seen::Client(Arc::downgrade(pool)),
            (Seen::Client(seen), Some(pool)) if seen.as_ptr() == Arc::as_ptr(pool) => return,
            _ => Seen::Others,
        };
    }

    /// A peer may look at the memory for longer than this side knows: it is not used again.
    pub(crate) fn retire(&self) {
        self.state.lock().seen = Seen::Others;
    }

    /// Begins the next use.
    fn begin(self: Arc<Self>, len: usize) -> Arc<Buffer> {
        let buffer = Arc::new(Buffer { memory: Some(self), len });
        if let Some(memory) = &buffer.memory {
            memory.state.lock().current = Arc::downgrade(&buffer);
        }
        buffer
    }

    /// The use is over: the memory goes to the pool of the peers that have seen it.
    fn end(self: Arc<Self>) {
        if self.is_inherited() {
            return;
        }
        let pool = match &self.state.lock().seen {
            Seen::Nobody => self.home.upgrade(),
            Seen::Servers => Some(BufferPool::common()),
            Seen::Client(pool) => pool.upgrade(),
            Seen::Others => None,
        };
        if let Some(pool) = pool {
            pool.put(self);
        }
    }
}

/// Memory in use. The user may write to it, and it is shown to the peers that get a message with a part of it. It is
/// used again when neither the user nor a peer has it any more.
#[derive(Debug)]
pub struct Buffer {
    /// Present until the buffer is dropped.
    memory: Option<Arc<Memory>>,
    len: usize,
}

impl Buffer {
    /// Bytes that were asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none were asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the buffer starts. Valid while `self` lives. Peers may be reading it.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory().mapping.address().as_ptr()
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.memory().mapping
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        self.memory.as_ref().expect("it is taken out when the buffer is dropped")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            memory.end();
        }
    }
}

/// Where memory waits for its next use. A peer that has been shown memory of a pool may see what is written to it next:
/// the servers that this process connected to, or one client of a server in this process.
#[derive(Debug)]
pub struct BufferPool(Owned<InnerMutex<Vec<Arc<Memory>>>>);

impl BufferPool {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Owned::new(InnerMutex::default())))
    }

    /// The pool of this process for memory that only servers see.
    #[must_use]
    pub fn common() -> Arc<Self> {
        static COMMON: LazyLock<PerProcess<Arc<BufferPool>>> = LazyLock::new(|| PerProcess::new(BufferPool::new));
        COMMON.with(Arc::clone)
    }

    /// Memory of `len` bytes that was used before, if this pool has some. Makes no system call unless peers have given
    /// memory back. It still holds its old contents.
    #[must_use]
    pub fn reuse(&self, len: usize) -> Option<Arc<Buffer>> {
        let size = size_for(len)?;
        let memory = self.take(size).or_else(|| {
            ask_lenders();
            self.take(size)
        });
        memory.map(|memory| memory.begin(len))
    }

    /// New memory of `len` bytes.
    ///
    /// # Errors
    /// The system's error: out of descriptors or memory, or `InvalidInput` if it cannot seal memory against writing.
    pub fn create(self: &Arc<Self>, len: usize) -> io::Result<Arc<Buffer>> {
        let size = size_for(len).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory::create(size, self)?.begin(len))
    }

    fn put(&self, memory: Arc<Memory>) {
        let mut surplus = Vec::new();
        let Some(kept) = self.0.get() else { return };
        let mut kept = kept.lock();
        kept.push(memory);
        let mut bytes: usize = kept.iter().map(|memory| memory.len()).sum();
        while bytes > KEPT_BYTES {
            let oldest = kept.remove(0);
            bytes -= oldest.len();
            surplus.push(oldest);
        }
        drop(kept);
        // Unmapping takes time, so it is done without the lock.
        drop(surplus);
    }

    /// The smallest memory that has `size` bytes, unless it is much larger.
    fn take(&self, size: usize) -> Option<Arc<Memory>> {
        let mut kept = self.0.get()?.lock();
        let fits = |memory: &Memory| memory.len() >= size && memory.len() <= size + size / 4;
        let fitting = kept.iter().enumerate().filter(|(_, memory)| fits(memory));
        let at = fitting.min_by_key(|(_, memory)| memory.len()).map(|(at, _)| at)?;
        Some(kept.remove(at))
    }
}

/// Bytes of memory for a use of `len` bytes; `None` if no system has so many.
fn size_for(len: usize) -> Option<usize> {
    let step = (len.max(1).checked_next_power_of_two()? / STEPS).max(PAGE);
    len.max(1).checked_next_multiple_of(step).filter(|&size| isize::try_from(size).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::holds_in_child;

    #[test]
    fn memory_is_used_again_when_its_use_is_over() {
        let pool = BufferPool::new();
        let first = pool.create(100_000).expect("memory");
        let at = first.as_ptr();
        first.memory().show(Some(&pool));
        assert!(pool.reuse(100_000).is_none(), "it is in use");
        drop(first);
        let again = pool.reuse(99_000).expect("about as long");
        assert_eq!(again.as_ptr(), at);
        assert_eq!(again.len(), 99_000);
    }

    #[test]
    fn what_one_client_has_seen_is_for_no_other() {
        let (one, other) = (BufferPool::new(), BufferPool::new());
        let buffer = one.create(3 << 20).expect("memory");
        let at = buffer.as_ptr();
        buffer.memory().show(Some(&one));
        buffer.memory().show(Some(&one));
        drop(buffer);
        assert!(other.reuse(3 << 20).is_none());
        assert!(BufferPool::common().reuse(3 << 20).is_none_or(|buffer| buffer.as_ptr() != at));
        let buffer = one.reuse(3 << 20).expect("its own");
        buffer.memory().show(Some(&other));
        drop(buffer);
        assert!(one.reuse(3 << 20).is_none(), "two have seen it");
        assert!(other.reuse(3 << 20).is_none(), "two have seen it");
    }

    #[test]
    fn retired_memory_is_not_used_again() {
        let pool = BufferPool::new();
        let buffer = pool.create(100_000).expect("memory");
        buffer.memory().show(Some(&pool));
        buffer.memory().retire();
        drop(buffer);
        assert!(pool.reuse(100_000).is_none());
    }

    #[test]
    fn a_forked_child_has_pools_of_its_own() {
        let other = BufferPool::new();
        let reuses_its_own = || {
            let own = BufferPool::common();
            let buffer = own.create(100_000).expect("memory");
            let at = buffer.as_ptr();
            drop(buffer);
            drop(other.create(100_000));
            own.reuse(100_000).is_some_and(|again| again.as_ptr() == at) && other.reuse(100_000).is_none()
        };
        let common = BufferPool::common();
        let lists = (common.0.get().expect("its own"), other.0.get().expect("its own"));
        let held = (lists.0.lock(), lists.1.lock());
        assert!(holds_in_child(reuses_its_own));
        drop(held);
    }

    #[test]
    fn sizes_waste_an_eighth_at_most() {
        for len in [1, 4096, 70_000, 1920 * 1080 * 3, (1 << 30) + 1] {
            let size = size_for(len).expect("there are so many");
            assert!(size >= len && size.is_multiple_of(PAGE) && size <= len + (len / 4).max(PAGE), "{len}: {size}");
        }
        assert_eq!(size_for(usize::MAX), None);
    }
}

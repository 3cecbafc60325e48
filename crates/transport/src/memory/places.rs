//! Finds the memory that an address belongs to, so that a payload can be handed over whichever Python object exposes
//! it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Weak};

use nearcall_platform::lock::InnerMutex;
use nearcall_platform::per_process::PerProcess;

use crate::sync::{AtomicUsize, Ordering};

/// Memory that can be handed over. Callers of [`find`] know the types that it can have.
type HeldMemory = Weak<dyn Any + Send + Sync>;

/// By start address: the length of the memory, and the memory.
type Places = InnerMutex<BTreeMap<usize, (usize, HeldMemory)>>;

/// A forked child begins with none: what it has inherited may not be handed over, and a thread of its parent may have
/// held the lock.
static PLACES: LazyLock<PerProcess<Places>> = LazyLock::new(|| PerProcess::new(Places::default));
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Registers an address range while it lives. It must not outlive the mapping.
#[derive(Debug)]
pub(crate) struct Registration(usize);

impl Registration {
    pub(crate) fn new(start: usize, len: usize, place: HeldMemory) -> Self {
        PLACES.with(|places| places.lock().insert(start, (len, place)));
        // Relaxed: a pointer into the range comes from the thread that mapped it, and so after this.
        COUNT.fetch_add(1, Ordering::Relaxed);
        Self(start)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let gone = PLACES.with(|places| places.lock().remove(&self.0));
        // Relaxed: only a hint from here on.
        COUNT.fetch_sub(1, Ordering::Relaxed);
        drop(gone);
    }
}

/// Whether any memory is registered.
pub(crate) fn any() -> bool {
    // Relaxed: see `Registration::new`.
    COUNT.load(Ordering::Relaxed) > 0
}

/// The memory in which all of `bytes` lie.
pub(crate) fn find(bytes: &[u8]) -> Option<Arc<dyn Any + Send + Sync>> {
    let start = bytes.as_ptr().addr();
    PLACES.with(|places| {
        let places = places.lock();
        let (first, (len, place)) = places.range(..=start).next_back()?;
        if start + bytes.len() > first + len {
            return None;
        }
        place.upgrade()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::holds_in_child;
    use crate::memory::BufferPool;

    #[test]
    fn a_forked_child_does_not_wait_for_what_its_parent_was_looking_for() {
        let inherited = BufferPool::new().create(100_000).expect("memory");
        let places = PLACES.get();
        let held = places.lock();
        let finds_its_own = || {
            let buffer = BufferPool::new().create(100_000).expect("memory");
            // SAFETY: the memory is the buffer's, and nobody writes to it.
            let bytes = |buffer: &crate::Buffer| unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) };
            find(bytes(&buffer)).is_some() && find(bytes(&inherited)).is_none()
        };
        assert!(holds_in_child(finds_its_own));
        drop(held);
    }
}

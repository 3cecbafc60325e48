//! Finds the memory that an address belongs to, so that a payload can be handed over whichever Python object exposes
//! it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use nearcall_platform::lock::InnerMutex;

use crate::sync::{AtomicUsize, Ordering};

/// Memory that can be handed over. Callers of [`find`] know the types that it can have.
type Place = Weak<dyn Any + Send + Sync>;

/// By start address: the length of the memory, and the memory.
static PLACES: InnerMutex<BTreeMap<usize, (usize, Place)>> = InnerMutex::new(BTreeMap::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Registers an address range while it lives. It must not outlive the mapping.
#[derive(Debug)]
pub(crate) struct Registration(usize);

impl Registration {
    pub(crate) fn new(start: usize, len: usize, place: Place) -> Self {
        PLACES.lock().insert(start, (len, place));
        // Relaxed: a pointer into the range comes from the thread that mapped it, and so after this.
        COUNT.fetch_add(1, Ordering::Relaxed);
        Self(start)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let gone = PLACES.lock().remove(&self.0);
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
    let places = PLACES.lock();
    let (first, (len, place)) = places.range(..=start).next_back()?;
    if start + bytes.len() > first + len {
        return None;
    }
    place.upgrade()
}

//! Which memory an address belongs to: so a payload can be handed over whatever object of Python shows it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use nearcall_platform::lock::InnerMutex;

use crate::sync::{AtomicUsize, Ordering};

/// Memory that may be handed over: whoever looks for it knows the types that it can have.
type Place = Weak<dyn Any + Send + Sync>;

/// By where it starts: its length, and what it is.
static PLACES: InnerMutex<BTreeMap<usize, (usize, Place)>> = InnerMutex::new(BTreeMap::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// An address range is known as long as this lives, which must not be longer than the mapping.
#[derive(Debug)]
pub(crate) struct Registration(usize);

impl Registration {
    pub(crate) fn new(start: usize, len: usize, place: Place) -> Self {
        PLACES.lock().insert(start, (len, place));
        // Relaxed: who has a pointer into the range has it from who mapped it, and so comes after this.
        COUNT.fetch_add(1, Ordering::Relaxed);
        Self(start)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let gone = PLACES.lock().remove(&self.0);
        // Relaxed: a hint from here on.
        COUNT.fetch_sub(1, Ordering::Relaxed);
        drop(gone);
    }
}

/// Whether there is anything to be found.
pub(crate) fn any() -> bool {
    // Relaxed: as where it is counted.
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

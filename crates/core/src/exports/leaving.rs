//! This side's own objects that the other side has released right after a message that sends them back.

use std::num::NonZeroU64;
use std::sync::{Arc, Weak};

use super::numbers::ByNumber;

/// Fewer entries are not worth a sweep.
const FEW: usize = 64;

/// These objects by number, held weakly: the message keeps each alive until it was read.
#[derive(Debug)]
pub(super) struct Leaving<T> {
    by_id: ByNumber<Weak<T>>,
    /// At this many entries, a sweep takes out those that nobody holds. It is twice as many as the last sweep has left,
    /// so that each entry costs a look or two, however many objects a peer releases.
    sweep_at: usize,
    #[cfg(test)]
    looked_at: usize,
}

impl<T> Default for Leaving<T> {
    fn default() -> Self {
        Self {
            by_id: ByNumber::default(),
            sweep_at: FEW,
            #[cfg(test)]
            looked_at: 0,
        }
    }
}

impl<T> Leaving<T> {
    pub(super) fn insert(&mut self, id: NonZeroU64, object: &Arc<T>) {
        if self.by_id.len() >= self.sweep_at {
            #[cfg(test)]
            {
                self.looked_at += self.by_id.len();
            }
            self.by_id.retain(|_, object| object.strong_count() > 0);
            self.sweep_at = FEW.max(2 * self.by_id.len());
        }
        self.by_id.insert(id, Arc::downgrade(object));
    }

    pub(super) fn get(&self, id: NonZeroU64) -> Option<Arc<T>> {
        self.by_id.get(&id)?.upgrade()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).expect("not 0")
    }

    #[test]
    fn many_cost_a_look_or_two_each() {
        let mut leaving = Leaving::default();
        let held: Vec<_> = (1..=20_000).map(Arc::new).collect();
        for object in &held {
            leaving.insert(id(**object), object);
        }
        assert!(leaving.looked_at < 2 * held.len(), "{} looks", leaving.looked_at);
        assert!(held.iter().all(|object| leaving.get(id(**object)).as_ref() == Some(object)));
    }

    #[test]
    fn those_that_nobody_has_are_not_kept() {
        let mut leaving = Leaving::default();
        for number in 1..=20_000 {
            leaving.insert(id(number), &Arc::new(number));
            assert!(leaving.by_id.len() <= FEW);
        }
        assert!(leaving.get(id(1)).is_none());
    }
}

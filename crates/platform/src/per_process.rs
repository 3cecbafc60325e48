//! Values that the threads of one process share, and that a forked child must not touch: it makes its own.

use std::mem::forget;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::fork::Owned;

/// A value that every process has for itself.
///
/// In a forked child, the parent's value is as the parent's threads left it at that moment: a lock may be held, or a
/// connection half made, by threads that do not exist in the child. So the child neither reads nor drops it. It makes
/// its own value at the first access.
pub struct PerProcess<T> {
    value: ArcSwap<Owned<T>>,
    make: fn() -> T,
}

/// The value of this process. It stays alive as long as this does.
#[derive(Debug)]
pub struct Mine<T>(Arc<Owned<T>>);

impl<T> Deref for Mine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.even_in_child()
    }
}

impl<T> PerProcess<T> {
    /// A value that `make` makes, in this process and in each forked child.
    #[must_use]
    pub fn new(make: fn() -> T) -> Self {
        Self { value: ArcSwap::from_pointee(Owned::new(make())), make }
    }

    /// The value of this process.
    #[must_use]
    pub fn get(&self) -> Mine<T> {
        let value = self.value.load_full();
        if value.get().is_some() {
            return Mine(value);
        }
        // If two threads of the child get here, one sets its value, and the other finds that value.
        let before = self.value.compare_and_swap(&value, Arc::new(Owned::new((self.make)())));
        if Arc::ptr_eq(&before, &value) {
            forget(value);
        }
        Mine(self.value.load_full())
    }
}

impl<T> PerProcess<T> {
    /// Looks at the value of this process. Cheaper than [`get`](Self::get).
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        match self.value.load().get() {
            Some(value) => look(value),
            None => look(&self.get()),
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let value = self.value.load_full();
        if value.get().is_none() {
            forget(value);
        }
    }
}

impl<T> std::fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

//! Threads that are to be woken.

use std::thread::Thread;

use smallvec::{Array, SmallVec};

/// Threads that are woken when it is dropped.
#[derive(Debug, Default)]
pub(in crate::client) struct Woken(SmallVec<[Thread; 2]>);

impl Woken {
    #[inline]
    pub(in crate::client) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(in crate::client) fn wake(&mut self) {
        self.0.drain(..).for_each(|thread| thread.unpark());
    }

    #[inline]
    pub(in crate::client) fn take_over(&mut self, other: &mut Self) {
        self.take_in(&mut other.0);
    }

    /// Takes over all threads of a list.
    #[inline]
    pub(in crate::client) fn take_in(&mut self, threads: &mut SmallVec<impl Array<Item = Thread>>) {
        if !threads.is_empty() {
            self.0.extend(threads.drain(..));
        }
    }
}

impl Drop for Woken {
    #[inline]
    fn drop(&mut self) {
        self.wake();
    }
}

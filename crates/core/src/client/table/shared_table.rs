//! The table of calls behind its lock, and the threads that are woken once that is free.

use std::ops::{Deref, DerefMut};

use nearcall_platform::lock::{Mutex, MutexGuard};

use crate::client::table::Table;
use crate::client::table::waker::Woken;
use crate::sync::{AtomicBool, Ordering};

/// The table and its lock.
#[derive(Debug, Default)]
pub(in crate::client) struct SharedTable {
    table: Mutex<Table>,
    /// The leader has threads to wake.
    owes: AtomicBool,
}

impl SharedTable {
    #[inline]
    pub(in crate::client) fn lock(&self) -> LockedTable<'_> {
        LockedTable { table: self.table.lock(), woken: Woken::default() }
    }

    /// Runs `look` on the locked table, for the leader. Threads that are to be woken sleep on until the leader calls
    /// [`wake`](SharedTable::wake): a thread woken in the middle of a batch takes the CPU, finds that somebody leads,
    /// and sleeps again with its next call.
    #[inline]
    pub(in crate::client) fn leading<T>(&self, look: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let result = look(&mut table);
        if !table.woken.0.is_empty() {
            // Relaxed: read by the leader itself.
            self.owes.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Wakes the threads for which something was delivered. To be called by the leader before it sleeps, and when it has
    /// left the lead.
    #[inline]
    pub(in crate::client) fn wake(&self) {
        // Relaxed: a later leader finds what an earlier one left, as it took the lock after it.
        if self.owes() {
            self.owes.store(false, Ordering::Relaxed);
            drop(self.lock());
        }
    }

    /// Whether there are threads to wake. For the leader.
    #[inline]
    pub(in crate::client) fn owes(&self) -> bool {
        // Relaxed: see `wake`.
        self.owes.load(Ordering::Relaxed)
    }
}

/// The locked table. Threads are woken once the lock is free, because they take it themselves.
pub(in crate::client) struct LockedTable<'a> {
    // In this order: fields are dropped as they are declared.
    table: MutexGuard<'a, Table>,
    woken: Woken,
}

impl Deref for LockedTable<'_> {
    type Target = Table;

    #[inline]
    fn deref(&self) -> &Table {
        &self.table
    }
}

impl DerefMut for LockedTable<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.table
    }
}

impl Drop for LockedTable<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.table.woken.0.is_empty() {
            self.woken = std::mem::take(&mut self.table.woken);
        }
    }
}

#[cfg(test)]
mod tests {
    use nearcall_transport::Incoming;
    use nearcall_wire::Failure;

    use super::*;
    use crate::client::table::waker::Waker;

    #[test]
    fn every_thread_that_waits_for_a_call_is_woken_and_no_earlier_than_the_table_is_free() {
        let table = SharedTable::default();
        let id = table.lock().begin(Waker::None, false, &[]).expect("alive");
        let reader = std::thread::current();
        std::thread::scope(|scope| {
            let (waits, waiting) = std::sync::mpsc::channel();
            let sender = scope.spawn({
                let table = &table;
                move || {
                    table.lock().wait(&[id], &std::thread::current());
                    waits.send(()).expect("the other thread waits for it");
                    std::thread::park();
                }
            });
            waiting.recv().expect("it waits");
            let mut locked = table.lock();
            locked.wait(&[id], &reader);
            // Taken back, it is in the way of nobody else.
            locked.wait(&[id], &std::thread::current());
            locked.stop_waiting(&[id], std::thread::current().id());
            locked.wait(&[id], &reader);
            let credit = Incoming::local(id.number(), &Failure::new(Failure::UNKNOWN, "something"));
            assert_eq!(locked.deliver(&mut Some(credit), None), Ok(false));
            assert_eq!(locked.table.woken.0.len(), 2);
            drop(locked);
            assert!(table.lock().table.woken.0.is_empty());
            sender.join().expect("woken");
        });
        std::thread::park();
    }
}

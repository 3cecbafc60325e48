//! The table of calls behind its lock, and the threads that are woken once that is free.

use std::ops::{Deref, DerefMut};

use nearcall_platform::lock::{Mutex, MutexGuard};

use crate::client::table::{Table, Woken};

/// The table and its lock.
#[derive(Debug, Default)]
pub(in crate::client) struct SharedTable(Mutex<Table>);

impl SharedTable {
    #[inline]
    pub(in crate::client) fn lock(&self) -> LockedTable<'_> {
        LockedTable { table: self.0.lock(), woken: Woken::default() }
    }

    /// Runs `look` on the locked table. Threads that are to be woken sleep until the caller drops `woken`: a thread woken in
    /// the middle of a batch takes the CPU, finds that somebody leads, and sleeps again with its next call.
    #[inline]
    pub(in crate::client) fn with<T>(&self, woken: &mut Woken, look: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.0.lock();
        let result = look(&mut table);
        woken.take_in(&mut table.woken.0);
        result
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
        self.woken.take_in(&mut self.table.woken.0);
    }
}

#[cfg(test)]
mod tests {
    use nearcall_transport::Incoming;
    use nearcall_wire::Failure;

    use super::*;

    #[test]
    fn every_thread_that_waits_for_a_call_is_woken_and_no_earlier_than_the_table_is_free() {
        let table = SharedTable::default();
        let id = table.lock().begin(false, false, &[]).expect("alive");
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
            assert!(!locked.table.woken.is_empty());
            drop(locked);
            assert!(table.lock().table.woken.is_empty());
            sender.join().expect("woken");
        });
        std::thread::park();
    }
}

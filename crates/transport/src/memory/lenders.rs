//! Connections that lend buffers. Before new memory is made, they are asked for buffers that peers have given back.

use std::fmt::Debug;
use std::sync::{LazyLock, Weak};

use nearcall_platform::lock::InnerMutex;
use nearcall_platform::per_process::PerProcess;

/// A connection that lends buffers.
pub(crate) trait Lender: Debug + Send + Sync {
    /// Releases the buffers that the peer has given back. Called without locks: memory may have to be unmapped.
    fn take_back(&self);
}

type Lenders = InnerMutex<Vec<Weak<dyn Lender>>>;

/// A forked child begins with none, for a thread of its parent may have held the lock.
static LENDERS: LazyLock<PerProcess<Lenders>> = LazyLock::new(|| PerProcess::new(Lenders::default));

/// Registers a connection, to be asked for buffers that were given back as long as it lives.
pub(crate) fn watch_lender(lender: Weak<dyn Lender>) {
    let lenders = LENDERS.get();
    let mut lenders = lenders.lock();
    lenders.retain(|lender| lender.strong_count() > 0);
    lenders.push(lender);
}

/// Releases the buffers that peers have given back since the last call.
pub(super) fn ask_lenders() {
    let lenders: Vec<_> = LENDERS.get().lock().iter().filter_map(Weak::upgrade).collect();
    for lender in &lenders {
        lender.take_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::holds_in_child;

    #[test]
    fn a_forked_child_does_not_wait_for_who_was_asking() {
        let lenders = LENDERS.get();
        let held = lenders.lock();
        assert!(holds_in_child(|| {
            ask_lenders();
            true
        }));
        drop(held);
    }
}

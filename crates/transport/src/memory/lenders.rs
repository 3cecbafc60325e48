//! Connections that lend buffers. Before new memory is made, they are asked for buffers that peers have given back.

use std::fmt::Debug;
use std::sync::Weak;

use nearcall_platform::lock::InnerMutex;

/// A connection that lends buffers.
pub(crate) trait Lender: Debug + Send + Sync {
    /// Releases the buffers that the peer has given back. Called without locks: memory may have to be unmapped.
    fn take_back(&self);
}

static LENDERS: InnerMutex<Vec<Weak<dyn Lender>>> = InnerMutex::new(Vec::new());

/// Registers a connection, to be asked for buffers that were given back as long as it lives.
pub(crate) fn watch_lender(lender: Weak<dyn Lender>) {
    let mut lenders = LENDERS.lock();
    lenders.retain(|lender| lender.strong_count() > 0);
    lenders.push(lender);
}

/// Releases the buffers that peers have given back since the last call.
pub(super) fn ask_lenders() {
    let lenders: Vec<_> = LENDERS.lock().iter().filter_map(Weak::upgrade).collect();
    for lender in &lenders {
        lender.take_back();
    }
}

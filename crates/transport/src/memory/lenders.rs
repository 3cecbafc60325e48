//! Connections on which buffers are lent: they are asked for what was given back before new memory is made.

use std::fmt::Debug;
use std::sync::Weak;

use nearcall_platform::lock::InnerMutex;

/// A connection on which buffers are lent.
pub(crate) trait Lender: Debug + Send + Sync {
    /// Lets go of the buffers that its peer has given back. No lock is held meanwhile: memory may have to be unmapped.
    fn take_back(&self);
}

static LENDERS: InnerMutex<Vec<Weak<dyn Lender>>> = InnerMutex::new(Vec::new());

/// From now on it is asked for what was given back, as long as it lives.
pub(crate) fn watch_lender(lender: Weak<dyn Lender>) {
    let mut lenders = LENDERS.lock();
    lenders.retain(|lender| lender.strong_count() > 0);
    lenders.push(lender);
}

/// Looks for memory that peers have given back since somebody last asked.
pub(super) fn ask_lenders() {
    let lenders: Vec<_> = LENDERS.lock().iter().filter_map(Weak::upgrade).collect();
    for lender in &lenders {
        lender.take_back();
    }
}

//! Connections with calls that wait until memory is freed, by whomever. What comes over such a connection lets its calls
//! go on, too; but its client may have nothing to say before they do.

use std::collections::BTreeSet;

use nearcall_platform::lock::Mutex;

/// The tokens of these connections. Some may have no such call any more.
#[derive(Debug, Default)]
pub(in crate::server) struct HeldUp {
    tokens: Mutex<BTreeSet<u64>>,
}

impl HeldUp {
    /// Adds a connection. The receiving thread is told of a new one by `tell`: from then on it asks to be woken when memory
    /// is freed.
    #[cold]
    pub(in crate::server) fn add(&self, token: u64, tell: impl FnOnce()) {
        if self.tokens.lock().insert(token) {
            tell();
        }
    }

    /// Drops those that are not to be kept; whether any are left. For the receiving thread.
    pub(in crate::server) fn retain(&self, keep: impl FnMut(&u64) -> bool) -> bool {
        // Taken out for the question, which waits for the locks of links: one that is added meanwhile counts as new.
        let mut tokens = std::mem::take(&mut *self.tokens.lock());
        tokens.retain(keep);
        let mut now = self.tokens.lock();
        now.append(&mut tokens);
        !now.is_empty()
    }
}

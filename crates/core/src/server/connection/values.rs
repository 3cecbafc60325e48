//! The memory that a client's values take once they are decoded: a byte on the wire can become a list or a set.
//!
//! The bytes of a message are charged when it arrives, the values while it is decoded, since only the decoder knows
//! them. Messages of at most [`SHORT`] bytes count only beside more than [`FEW_CALLS`] calls, and those of at most
//! [`TINY`] bytes never: the number of calls is limited.

use std::sync::OnceLock;

use nearcall_transport::SharedCharge;

use crate::server::connection::ServerConnection;
use crate::sync::Ordering;

/// The values of a message up to this length are not charged, while few calls are under way.
const SHORT: usize = 1024;
/// The values of a message up to this length are never charged.
const TINY: usize = 16;
/// So many calls are few: with messages of [`SHORT`] bytes they hold lists of 18 MiB, or sets of 60 MiB.
const FEW_CALLS: usize = 256;

/// What is charged for the values of one message.
#[derive(Debug, Default)]
pub struct ValuesCharge(OnceLock<SharedCharge>);

impl ValuesCharge {
    /// The charge, for a message of a client.
    #[must_use]
    pub fn of<'a>(&'a self, connection: &'a ServerConnection) -> ValueBudget<'a> {
        ValueBudget { connection, charge: &self.0 }
    }

    /// Whether anything was ever charged.
    pub(in crate::server) fn is_charged(&self) -> bool {
        self.0.get().is_some()
    }

    /// The values are gone, or another message's values take their place.
    pub fn clear(&self) {
        if let Some(charge) = self.0.get() {
            charge.clear();
        }
    }
}

/// The memory that the values of one message may take.
#[derive(Debug, Clone, Copy)]
pub struct ValueBudget<'a> {
    connection: &'a ServerConnection,
    charge: &'a OnceLock<SharedCharge>,
}

impl ValueBudget<'_> {
    /// Whether the values of a message of this length are charged.
    #[inline]
    #[must_use]
    pub fn counts(&self, len: usize) -> bool {
        // Relaxed: a bound on memory that need not be exact.
        len > SHORT || (len > TINY && self.connection.shared.in_flight.load(Ordering::Relaxed) > FEW_CALLS)
    }

    /// Charges so many bytes more. Returns `false` if their client, or all clients together, would take too much memory.
    #[must_use]
    pub fn add(&self, bytes: usize) -> bool {
        let account = || SharedCharge::new(self.connection.values_account());
        self.charge.get_or_init(account).add(bytes)
    }
}

//! The numbers of calls: which slot of the table a call gets, and how often that was used.

use std::collections::VecDeque;

const SLOT_BITS: u32 = 20;
const SLOTS: u32 = 1 << SLOT_BITS;
/// How many slots of cancelled calls rest before the oldest is used again. A slot has 4096 numbers. If such calls in a
/// row all used one slot, the late reply to the first would be taken for that to the last of 4096 that the server has
/// not even read. This many slots have eight million numbers, which no queue holds.
pub(in crate::client) const RESTING: usize = 2048;

/// A call under way. Its number names a slot and how often the slot was used, so that a late frame for an old call never
/// reaches a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(u32);

impl CallId {
    /// The call of that number on the wire.
    pub(in crate::client) fn of(number: u32) -> Self {
        Self(number)
    }

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    pub(in crate::client) fn slot(self) -> usize {
        (self.0 & (SLOTS - 1)) as usize
    }

    /// The next call that uses the slot.
    pub(in crate::client) fn next(self) -> Self {
        Self(self.0.wrapping_add(SLOTS))
    }
}

/// The slots that no call uses.
#[derive(Debug, Default)]
pub(in crate::client) struct Slots {
    /// How many slots were ever used.
    used: u32,
    free: Vec<u32>,
    /// Slots of calls that were given up before their end had come, oldest first.
    resting: VecDeque<u32>,
}

impl Slots {
    /// A slot that was used before.
    #[inline]
    pub(in crate::client) fn reusable(&mut self) -> Option<u32> {
        let free = self.free.pop();
        if free.is_none() && (self.resting.len() > RESTING || self.used == SLOTS - 1) {
            return self.resting.pop_front();
        }
        free
    }

    /// The first call of the next slot that was never used. `None` if there is none: the last number is that of calls
    /// without a reply.
    pub(in crate::client) fn unused(&mut self) -> Option<CallId> {
        (self.used < SLOTS - 1).then(|| {
            self.used += 1;
            CallId(self.used - 1)
        })
    }

    /// The call in a slot is forgotten. `ended`: nothing more will come for it.
    pub(in crate::client) fn leave(&mut self, slot: u32, ended: bool) {
        if ended {
            self.free.push(slot);
        } else {
            self.resting.push_back(slot);
        }
    }
}

//! Stand-ins for `crates/platform/src/cpu.rs`: no thread ever uses the processor, so every handler sleeps.
#![allow(missing_docs, reason = "the real ones are documented where they are")]

use std::time::Duration;

pub struct ThreadClock;

impl ThreadClock {
    pub fn mine() -> Self {
        Self
    }

    pub fn to_bits(self) -> u32 {
        0
    }

    pub fn from_bits(_bits: u32) -> Self {
        Self
    }

    pub fn time(self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

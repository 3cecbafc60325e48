//! Stand-ins for `crates/platform/src/descriptors.rs`: one poller and one event descriptor in every execution.
#![allow(missing_docs, reason = "the real ones are documented where they are")]

use loom::sync::{Condvar, Mutex};

#[derive(Debug)]
pub struct EventDescriptor;

#[derive(Debug)]
pub struct Poller;

#[derive(Default)]
struct Signals {
    signalled: bool,
    readable: bool,
}

loom::lazy_static! {
    static ref SIGNALS: (Mutex<Signals>, Condvar) = (Mutex::new(Signals::default()), Condvar::new());
}

/// Something has come, or has been taken.
#[cfg(test)]
pub(crate) fn set_readable(readable: bool) {
    SIGNALS.0.lock().expect("no panic").readable = readable;
    SIGNALS.1.notify_all();
}

pub fn signal(_event: &EventDescriptor) {
    SIGNALS.0.lock().expect("no panic").signalled = true;
    SIGNALS.1.notify_all();
}

pub fn wait_for_either(_poller: &Poller, _event: &EventDescriptor) {
    let mut signals = SIGNALS.0.lock().expect("no panic");
    while !signals.signalled && !signals.readable {
        signals = SIGNALS.1.wait(signals).expect("no panic");
    }
    signals.signalled = false;
}

pub fn is_readable(_poller: &Poller) -> bool {
    SIGNALS.0.lock().expect("no panic").readable
}

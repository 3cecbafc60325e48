//! Stand-ins for `crates/platform/src/descriptors.rs`: one poller, one event descriptor and one alarm in every execution.
#![allow(missing_docs, reason = "the real ones are documented where they are")]

use std::time::Duration;

use loom::sync::{Condvar, Mutex};

#[derive(Debug)]
pub struct EventDescriptor;

#[derive(Debug)]
pub struct Poller;

#[derive(Debug)]
pub struct Alarm;

#[derive(Default)]
struct Signals {
    signalled: bool,
    alarmed: bool,
    readable: bool,
}

loom::lazy_static! {
    static ref SIGNALS: (Mutex<Signals>, Condvar) = (Mutex::new(Signals::default()), Condvar::new());
}

/// Sets whether there is something to receive.
#[cfg(test)]
pub(crate) fn set_readable(readable: bool) {
    SIGNALS.0.lock().expect("no panic").readable = readable;
    SIGNALS.1.notify_all();
}

pub fn signal(_event: &EventDescriptor) {
    SIGNALS.0.lock().expect("no panic").signalled = true;
    SIGNALS.1.notify_all();
}

/// The alarm rings at once. The thread that it wakes may be as late as the other threads let it.
pub fn set_alarm(_alarm: &Alarm, _after: Duration) {
    SIGNALS.0.lock().expect("no panic").alarmed = true;
    SIGNALS.1.notify_all();
}

pub fn take_back(_alarm: &Alarm) {
    SIGNALS.0.lock().expect("no panic").alarmed = false;
}

pub fn sleep(poller: Option<&Poller>, _alarm: &Alarm, _event: &EventDescriptor) {
    let mut signals = SIGNALS.0.lock().expect("no panic");
    while !(signals.signalled || signals.alarmed || signals.readable && poller.is_some()) {
        signals = SIGNALS.1.wait(signals).expect("no panic");
    }
    signals.signalled = false;
    signals.alarmed = false;
}

pub fn is_readable(_poller: &Poller) -> bool {
    SIGNALS.0.lock().expect("no panic").readable
}

//! Stands in for the system's poller and the bells: one of each, in every execution.

use loom::sync::{Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct Bell;

#[derive(Debug)]
pub(crate) struct Poller;

#[derive(Default)]
struct Signals {
    rung: bool,
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

pub(super) fn ring(_bell: &Bell) {
    SIGNALS.0.lock().expect("no panic").rung = true;
    SIGNALS.1.notify_all();
}

pub(super) fn wait_for_either(_poller: &Poller, _bell: &Bell) {
    let mut signals = SIGNALS.0.lock().expect("no panic");
    while !signals.rung && !signals.readable {
        signals = SIGNALS.1.wait(signals).expect("no panic");
    }
    signals.rung = false;
}

pub(super) fn is_readable(_poller: &Poller) -> bool {
    SIGNALS.0.lock().expect("no panic").readable
}

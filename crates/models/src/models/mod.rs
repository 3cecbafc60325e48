//! The models.

mod budget;
mod interpreter;
mod lock;
mod outbox;

use std::time::Duration;

use crate::lock::{Condvar, Mutex};

/// Runs the model. `preemptions` is how often threads are interrupted at most; `None`: as often as possible.
pub(crate) fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// A lock whose atomics are made here, so that other threads may see it from now on.
fn settled<T>(inside: T) -> Mutex<T> {
    let lock = Mutex::new(inside);
    assert!(!lock.is_locked());
    lock
}

/// A condition whose atomics are made here, so that other threads may see it from now on.
fn condition() -> Condvar {
    let condition = Condvar::new();
    condition.wait_for(&mut settled(()).lock(), Duration::ZERO);
    condition
}

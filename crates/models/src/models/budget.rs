//! `crates/transport/src/limits/budget/mod.rs`

use std::sync::Arc;

use loom::thread;

use super::check;
use crate::descriptors::{Alarm, EventDescriptor, sleep};
use crate::limits::budget::{Account, Budget};

const MIB: usize = 1 << 20;

/// The waiting thread does what the server's reactor does: it looks again after it has marked the budget, and sleeps
/// only if the mark was there.
#[test]
fn who_waits_for_room_is_told_of_it() {
    check(None, || {
        let event = Arc::new(EventDescriptor);
        let budget = Budget::waking(2 * MIB, &Arc::downgrade(&event));
        let account = Account::of(&budget, 2 * MIB);
        let kept = account.charge_anyway(2 * MIB);
        let other = thread::spawn(move || drop(kept));
        while !account.allows(MIB + 1) {
            if !budget.await_room() {
                sleep(None, &Alarm, &event);
            }
        }
        other.join().expect("no panic");
        assert_eq!(budget.used(), 0);
    });
}

// What fails where an ordering is weakened, or a step left out:
//
// | in `budget.rs` | then |
// |---|---|
// | `await_room` is not asked a second time before sleeping | the refused thread sleeps though all is free |
// | `free` does not look at the mark | no thread wakes the sleeper |

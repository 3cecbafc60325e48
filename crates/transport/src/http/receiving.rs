//! How a receiving thread waits: it spins as long as that pays, then sleeps.

use std::io;
use std::time::Instant;

use nearcall_platform::clock;
use nearcall_platform::lock::Mutex;
use nearcall_ring::SpinBudget;

use crate::errors::LinkError;
use crate::frame::incoming::Incoming;
use crate::link::LONGEST_SLEEP;

/// [`Link::receive`](crate::Link::receive) for a link with these functions: `try_receive` returns a frame without
/// waiting, `sleep` sleeps until a time and says whether something may have arrived.
pub(super) fn receive(
    budget: &Mutex<SpinBudget>,
    deadline: Option<Instant>,
    try_receive: impl Fn() -> Result<Option<Incoming>, LinkError>,
    sleep: impl FnOnce(Instant) -> io::Result<bool>,
    slot: &mut Option<Incoming>,
) -> Result<(), LinkError> {
    *slot = match wait(budget, deadline, try_receive, sleep) {
        // The peer may go on for ever: the caller looks at its deadline first.
        Err(LinkError::Unfinished) => None,
        received => received?,
    };
    Ok(())
}

fn wait(
    budget: &Mutex<SpinBudget>,
    deadline: Option<Instant>,
    try_receive: impl Fn() -> Result<Option<Incoming>, LinkError>,
    sleep: impl FnOnce(Instant) -> io::Result<bool>,
) -> Result<Option<Incoming>, LinkError> {
    if let Some(frame) = try_receive()? {
        return Ok(Some(frame));
    }
    let mut budget = budget.lock();
    let begun = clock::monotonic_ns();
    let limit = budget.next_until(deadline);
    while clock::monotonic_ns() - begun < limit && budget.share_cpu() {
        if let Some(frame) = try_receive()? {
            budget.uncrowded();
            budget.learn(clock::monotonic_ns() - begun);
            return Ok(Some(frame));
        }
    }
    if sleep(deadline.unwrap_or_else(|| Instant::now() + LONGEST_SLEEP))? {
        budget.learn(clock::monotonic_ns() - begun);
    }
    try_receive()
}

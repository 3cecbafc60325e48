//! Waiting for the next frame or event: spinning while that pays, sleeping in the poller after that.

use std::time::Duration;

use nearcall_platform::clock;

use super::Reactor;
use super::receiving::ExpectedReply;
use crate::client::Awaited;
use crate::server::leadership::PATIENCE;
use crate::server::work::Work;
use crate::sync::Ordering;

/// Spinning rounds between two looks at the clock, while only shared memory is active.
const ROUNDS_PER_CLOCK: u32 = 64;
/// Of so many spinning rounds of who waits for a reply, one looks at all connections, and the others at that of the reply.
const ROUNDS_PER_REST: u32 = 8;
/// Spinning rounds between two looks at the system's poller, while only shared memory is active.
const ROUNDS_PER_POLL: u32 = 512;

impl Reactor {
    /// Waits until something may be here, for `at_most` so long: spins while that pays, then sleeps in the poller. A request
    /// it met by spinning is returned at once.
    pub(in crate::server) fn wait_for(&mut self, at_most: Option<Duration>) -> Option<Work> {
        self.wait(at_most, None)
    }

    /// The same for who waits for a reply over the connection of that token, which is looked at more often than others. Whether
    /// the wait is over by what came there.
    pub(in crate::server) fn wait_for_reply(
        &mut self,
        at_most: Duration,
        token: u64,
        awaited: &mut dyn Awaited,
    ) -> (Option<Work>, bool) {
        let Some(mut reply) = self.expect(token, awaited) else {
            return (self.wait(Some(at_most), None), false);
        };
        let work = self.wait(Some(at_most), Some(&mut reply));
        (work, reply.over)
    }

    fn wait(&mut self, at_most: Option<Duration>, reply: Option<&mut ExpectedReply<'_>>) -> Option<Work> {
        if self.has_work() {
            return None;
        }
        self.asleep_since = None;
        let routed = self.routed;
        let (spun, found) = self.spin(reply);
        if let Some(waited) = spun {
            self.budget.learn(waited);
            return found;
        }
        if self.routed != routed {
            // The caller may be a handler, and what came what it waits for.
            return None;
        }
        if self.stalled.wait_for_room() && self.shared.budget.await_room() {
            // Some may have come free before the mark was there: who waits is looked at again, and so is everybody else,
            // however often that happens.
            self.poll_events(Some(Duration::ZERO));
            return None;
        }
        let begun = clock::monotonic_ns();
        if !self.arm() {
            return None;
        }
        let look = self.stalled.wait_for_handlers().then(|| self.stalled.next_look());
        let timeout = self.handshakes.next_timer().into_iter().chain(at_most).chain(look).min();
        if self.slept_long {
            // As a rule the next sleep is as long as the last one. One that is short leaves the alarm set: it is set once in
            // a while then, and not for each request.
            self.shared.leadership.rest();
        }
        let happened = self.poll_events(timeout);
        let waited = clock::monotonic_ns() - begun;
        self.slept_long = Duration::from_nanos(waited) > PATIENCE;
        if happened {
            self.budget.learn(waited);
        }
        None
    }

    /// For an event loop that receives: spins while that pays. Whether to look again, and a request it met.
    pub(in crate::server) fn spin_for_loop(&mut self) -> (bool, Option<Work>) {
        let (spun, found) = self.spin(None);
        if let Some(waited) = spun {
            self.budget.learn(waited);
        }
        (spun.is_some(), found)
    }

    /// For an event loop that is going to watch the poller's descriptor: `false` if something is here already.
    pub(in crate::server) fn fall_asleep(&mut self) -> bool {
        let quiet = self.arm();
        if quiet {
            self.asleep_since = Some(clock::monotonic_ns());
        }
        quiet
    }

    /// Whether an event loop fell asleep here and has not come back.
    pub(in crate::server) fn is_asleep(&self) -> bool {
        self.asleep_since.is_some()
    }

    /// For an event loop that comes back: takes in what the poller has seen meanwhile.
    pub(in crate::server) fn wake_up(&mut self) {
        let happened = self.poll_events(Some(Duration::ZERO));
        if let Some(since) = self.asleep_since.take()
            && happened
        {
            self.budget.learn(clock::monotonic_ns() - since);
        }
        self.loop_active = false;
    }

    /// Whether somebody must be here at a certain time, even if nothing comes.
    pub(in crate::server) fn has_timer(&self) -> bool {
        self.handshakes.has_timer() || self.stalled.wait_for_handlers()
    }

    /// From here on every client must ring the bell. `false`, and they need not, if something is here already. Nobody sleeps
    /// in the poller before this has said that all is quiet: a look at the poller may have brought work, not only events.
    pub(super) fn arm(&mut self) -> bool {
        if self.has_work() {
            return false;
        }
        let mut all_quiet = true;
        for client in &self.memory {
            all_quiet &= client.connection.link.arm();
        }
        if !all_quiet {
            for client in &self.memory {
                client.connection.link.disarm();
            }
            return false;
        }
        for client in self.memory.drain(..) {
            client.listed.store(false, Ordering::Relaxed);
            if client.hung_up.load(Ordering::Relaxed) {
                // Nothing will wake us for it again.
                self.readable.push_back(client);
            }
        }
        if !self.readable.is_empty() {
            return false;
        }
        self.sockets_active = false;
        self.loop_active = false;
        true
    }

    /// Spins for a request, an event or a reply. How long it took if there is something, and the request.
    fn spin(&mut self, mut reply: Option<&mut ExpectedReply<'_>>) -> (Option<u64>, Option<Work>) {
        let limit = self.budget.next();
        // The clock is read only after the first rounds, in which the usual next request comes.
        let mut begun = None;
        let mut rounds = 0_u32;
        let routed = self.routed;
        loop {
            let at_all = reply.is_none() || rounds % ROUNDS_PER_REST == ROUNDS_PER_REST - 1;
            let request = match &mut reply {
                Some(reply) if !at_all => self.look_for(reply),
                _ => self.poll(),
            };
            let replied = reply.as_ref().is_some_and(|reply| reply.over);
            if request.is_some() || replied || self.routed != routed {
                if rounds > 0 && self.shares_cpu() {
                    self.budget.uncrowded();
                }
                return (Some(since(begun)), request);
            }
            if rounds == 0 && (limit == 0 || !self.spinning_pays()) {
                return (None, None);
            }
            rounds += 1;
            std::hint::spin_loop();
            if self.shares_cpu() && !self.budget.share_cpu() {
                return (None, None);
            }
            if self.sockets_active {
                if at_all && self.poll_events(Some(Duration::ZERO)) {
                    self.budget.uncrowded();
                    return (Some(since(begun)), None);
                }
            } else if rounds.is_multiple_of(ROUNDS_PER_POLL) && self.poll_events(Some(Duration::ZERO)) {
                return (Some(since(begun)), None);
            }
            if self.shares_cpu() || rounds.is_multiple_of(ROUNDS_PER_CLOCK) {
                let now = clock::monotonic_ns();
                if now - *begun.get_or_insert(now) >= limit || !self.spinning_pays() {
                    return (None, None);
                }
                for client in &self.memory {
                    // We may have moved to another CPU.
                    client.connection.link.disarm();
                }
            }
        }
    }

    /// Whether a client on a socket, or our own event loop, may need this very CPU.
    fn shares_cpu(&self) -> bool {
        self.sockets_active || self.loop_active
    }

    fn spinning_pays(&self) -> bool {
        self.sockets_active || self.memory.iter().any(|client| client.connection.link.spinning_pays())
    }
}

/// Nanoseconds since then; none if the clock was not even read.
fn since(begun: Option<u64>) -> u64 {
    begun.map_or(0, |begun| clock::monotonic_ns() - begun)
}

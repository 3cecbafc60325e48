//! Waiting for the next frame or event: spinning while that pays, sleeping in the poller after that.

use std::time::{Duration, Instant};

use nearcall_platform::clock;

use super::receiving::ExpectedReply;
use super::{Look, Reactor, STALLED};
use crate::client::Awaited;
use crate::server::handlers::work::Work;
use crate::server::inbound::{HUNG_UP, LISTED};
use crate::server::shared::mailbox::News;
use crate::server::threads::leadership::PATIENCE;

/// Spinning rounds between two looks at the clock, while only shared memory is active.
const ROUNDS_PER_CLOCK: u32 = 64;
/// While a thread that waits for a reply spins, one of so many rounds looks at all connections. The others look only at
/// the reply's connection.
const ROUNDS_PER_REST: u32 = 8;
/// Spinning rounds between two looks at the system's poller, while only shared memory is active.
const ROUNDS_PER_POLL: u32 = 512;

impl Reactor {
    /// Waits until something may be here, for at most `at_most`: spins while that pays, then sleeps in the poller.
    /// Returns a request that came while it spun.
    pub(in crate::server) fn wait_for(&mut self, at_most: Option<Duration>) -> Option<Work> {
        self.wait(at_most, None)
    }

    /// Like `wait_for`, for a thread that waits for a reply over the connection with this token: looks at that
    /// connection more often than at others. Also returns whether a frame that came there has ended the wait.
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
        if !self.backlog.is_empty() {
            return None;
        }
        self.asleep_since = None;
        let routed = self.routed;
        let (spun, found) = self.spin(reply);
        if spun {
            return found;
        }
        if self.routed != routed {
            // The caller may be a handler, and the frame that came may be what it waits for.
            return None;
        }
        let begun = clock::monotonic_ns();
        if !self.arm() {
            return None;
        }
        if self.slept_long {
            // The next sleep is mostly as long as the last one. Before a short sleep the alarm stays set: so it is set
            // once in a while, and not for each request.
            self.shared.leadership.rest();
        }
        let happened = self.poll_events(at_most);
        let waited = clock::monotonic_ns() - begun;
        self.slept_long = Duration::from_nanos(waited) > PATIENCE;
        if happened {
            self.budget.learn(waited);
        }
        None
    }

    /// Looks again and again for a moment, which has no look at the clock, if that pays and nobody may need this CPU.
    #[inline]
    pub(in crate::server) fn look_soon(&mut self) -> Look {
        if self.shares_cpu() || !self.budget.may_spin() || !self.spinning_pays() {
            return Look::Nothing;
        }
        for _ in 0..ROUNDS_PER_CLOCK {
            if self.may_find() {
                return self.look();
            }
            std::hint::spin_loop();
        }
        Look::Nothing
    }

    /// For an event loop that is about to sleep at the poller's descriptor. `false` if something is here already.
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

    /// For an event loop that has slept: takes in the poller's events.
    pub(in crate::server) fn wake_up(&mut self) {
        let happened = self.poll_events(Some(Duration::ZERO));
        if let Some(since) = self.asleep_since.take()
            && happened
        {
            self.budget.learn(clock::monotonic_ns() - since);
        }
        self.loop_active = false;
    }

    /// Before a sleep: from here on every client must ring the bell. `false` if something is here already; then no
    /// client need ring. A thread may sleep in the poller only after this has returned `true`: its last look at the
    /// poller may have brought work, not only events.
    pub(super) fn arm(&mut self) -> bool {
        if !self.backlog.is_empty() {
            return false;
        }
        if (self.stalled.wait_for_room() || !self.want_memory.is_empty()) && self.shared.budget.await_room() {
            // Memory may have been freed before this mark was set: look at these clients again. Look at all others as
            // well, so that none is overlooked however often this happens.
            self.let_go();
            self.poll_events(Some(Duration::ZERO));
            return false;
        }
        let mut all_quiet = true;
        for client in &self.memory {
            all_quiet &= client.connection.link.arm();
        }
        if !all_quiet {
            self.memory.iter().for_each(|client| client.connection.stay_awake());
            return false;
        }
        for client in self.memory.drain(..) {
            client.marks.clear(LISTED);
            if client.marks.has(HUNG_UP) {
                // The poller reports this client no more.
                self.readable.push(client);
            }
        }
        if !self.readable.is_empty() {
            return false;
        }
        if self.stalled.wait_for_handlers() {
            let look = Instant::now() + self.stalled.next_look();
            self.shared.mailbox.tell_at(look, STALLED, News::Due);
        }
        self.sockets_active = false;
        self.loop_active = false;
        true
    }

    /// For whoever holds the lead: spins for a request, an event or a reply while that pays. Returns whether something has come,
    /// and the request, if it was one.
    pub(in crate::server) fn spin(&mut self, mut reply: Option<&mut ExpectedReply<'_>>) -> (bool, Option<Work>) {
        let limit = self.budget.next();
        // The clock is read only after the first rounds, in which the usual next request comes.
        let mut begun = None;
        let mut rounds = 0_u32;
        let routed = self.routed;
        let found = loop {
            let at_all = reply.is_none() || rounds % ROUNDS_PER_REST == ROUNDS_PER_REST - 1;
            let request = match &mut reply {
                Some(reply) if !at_all && reply.may_come() => self.look_for(reply),
                Some(_) if !at_all => None,
                // The first round has looked whatever the hint says.
                None if rounds > 0 && !self.may_find() => None,
                _ => self.poll(),
            };
            let replied = reply.as_ref().is_some_and(|reply| reply.over);
            if request.is_some() || replied || self.routed != routed {
                if rounds > 0 && self.shares_cpu() {
                    self.budget.uncrowded();
                }
                break request;
            }
            if rounds == 0 && (limit == 0 || !self.spinning_pays()) {
                return (false, None);
            }
            rounds += 1;
            std::hint::spin_loop();
            if self.shares_cpu() && !self.budget.share_cpu() {
                return (false, None);
            }
            if self.sockets_active {
                if at_all && self.poll_events(Some(Duration::ZERO)) {
                    self.budget.uncrowded();
                    break None;
                }
            } else if rounds.is_multiple_of(ROUNDS_PER_POLL) && self.poll_events(Some(Duration::ZERO)) {
                break None;
            }
            if self.shares_cpu() || rounds.is_multiple_of(ROUNDS_PER_CLOCK) {
                let now = clock::monotonic_ns();
                if now - *begun.get_or_insert(now) >= limit || !self.spinning_pays() {
                    return (false, None);
                }
                // This thread may have moved to another CPU: this tells the clients which one.
                self.memory.iter().for_each(|client| client.connection.stay_awake());
            }
        };
        self.budget.learn(begun.map_or(0, |begun| clock::monotonic_ns() - begun));
        (true, found)
    }

    /// Whether a client on a socket, or this server's event loop, may need this very CPU.
    fn shares_cpu(&self) -> bool {
        self.sockets_active || self.loop_active
    }

    /// Whether a look at the connections may find something that was not there at the last one. Cheaper than the look, and
    /// without a lock.
    #[inline]
    fn may_find(&self) -> bool {
        !self.readable.is_empty() || self.memory.iter().any(|client| client.may_have_more())
    }

    fn spinning_pays(&self) -> bool {
        self.sockets_active || self.memory.iter().any(|client| client.connection.spinning_pays())
    }
}

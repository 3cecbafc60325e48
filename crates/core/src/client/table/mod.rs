//! The calls of one connection that are under way.

pub(in crate::client) mod leadership;
pub(in crate::client) mod shared_table;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::thread::{Thread, ThreadId};

use nearcall_transport::Incoming;
use nearcall_wire::{Failure, Kind, Malformed, flags};
use smallvec::{Array, SmallVec};

use crate::flow::{WINDOW, cost, granted};
use crate::given::given_in;

/// Frames of initial metadata that a call may have.
const MOST_HEADS: u8 = 64;
/// Calls that may be under way on a connection.
const MOST_CALLS: usize = 1 << 20;
/// Calls that were given up, and of which it is kept which references were given with them.
const MOST_LEFT: usize = 2048;
/// The number of messages that belong to no call, or to one without a reply.
pub(in crate::client) const NO_CALL: u32 = u32::MAX;

/// A call under way: its number on the wire. Calls are counted, so that a late frame for an old call never reaches a new one: a
/// number comes again after four billion calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
}

#[derive(Debug, Default)]
pub(super) struct Call {
    id: CallId,
    live: bool,
    pub(super) arrived: VecDeque<Incoming>,
    /// An event loop asks what has come.
    in_loop: bool,
    /// Threads that sleep until something comes: one that takes it, and one that sends a stream and waits for credit.
    sleepers: SmallVec<[Thread; 1]>,
    /// What may still be sent on the call's stream, bytes.
    pub(super) credit: i64,
    /// What the server may still send on its stream, bytes: it may begin an item as long as anything is left.
    pub(super) allowance: i64,
    /// Frames of initial metadata that have come.
    heads: u8,
    /// The last frame has come.
    pub(super) ended: bool,
    /// What comes for it may hold references.
    pub(super) references: bool,
    /// References given in the arguments and items, until the peer has shown that the call was begun.
    given: Vec<NonZeroU64>,
}

/// A call that was given up before its last frame had come.
#[derive(Debug)]
struct GivenUp {
    /// Frames that still come for the call may hold references.
    references: bool,
    given: Vec<NonZeroU64>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Each call is where the last bits of its number say. At least a quarter of the places are free, so that the next number
    /// soon finds one.
    calls: Vec<Call>,
    last: CallId,
    live: usize,
    /// Calls that were given up, if references are involved.
    left: BTreeMap<CallId, GivenUp>,
    /// Calls of the event loop for which something arrived since it last asked.
    pub(super) ready: Vec<CallId>,
    /// How many of `ready` the loop was told of, by the server that receives in its place.
    told: usize,
    /// Set once, when the connection is lost: every call from then on fails with it.
    pub(super) dead: Option<Failure>,
    /// Threads to wake once the lock is free.
    pub(super) woken: Woken,
    /// References in events that nobody will ever read.
    to_release: Vec<NonZeroU64>,
    /// References that this side has given with calls that the peer has not read.
    refused: Vec<NonZeroU64>,
}

/// The calls with which the peer has certainly not begun when a connection ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unbegun<'a> {
    /// The calls with these numbers, which are sorted.
    These(&'a [u32]),
    /// All that it has not answered.
    All,
}

impl Unbegun<'_> {
    fn has(self, number: u32) -> bool {
        match self {
            Self::These(numbers) => numbers.binary_search(&number).is_ok(),
            Self::All => true,
        }
    }
}

impl Table {
    /// Registers a call. `in_loop`: an event loop asks for it.
    pub(super) fn begin(&mut self, in_loop: bool, references: bool, given: &[NonZeroU64]) -> Result<CallId, Failure> {
        if let Some(failure) = &self.dead {
            return Err(failure.clone());
        }
        if 4 * self.live >= 3 * self.calls.len() {
            self.grow()?;
        }
        let call = loop {
            self.last = CallId(self.last.0.wrapping_add(1));
            let index = index(&self.calls, self.last);
            if self.last.0 != NO_CALL && !self.calls[index].live {
                break &mut self.calls[index];
            }
        };
        // `end` has emptied the lists of the call before.
        (call.id, call.live, call.in_loop) = (self.last, true, in_loop);
        (call.credit, call.allowance) = (WINDOW, WINDOW);
        (call.heads, call.ended, call.references) = (0, false, references);
        call.given.extend_from_slice(given);
        self.live += 1;
        Ok(call.id)
    }

    #[cold]
    fn grow(&mut self) -> Result<(), Failure> {
        if self.live >= MOST_CALLS {
            let text = "over a million calls are under way on this connection";
            return Err(Failure::new(Failure::RESOURCE_EXHAUSTED, text));
        }
        let mut calls = Vec::new();
        calls.resize_with((2 * self.calls.len()).max(4), Call::default);
        for call in self.calls.drain(..).filter(|call| call.live) {
            let index = index(&calls, call.id);
            calls[index] = call;
        }
        self.calls = calls;
        Ok(())
    }

    /// The call, if it is still under way.
    #[inline]
    pub(super) fn get(&mut self, id: CallId) -> Option<&mut Call> {
        find(&mut self.calls, id)
    }

    /// Whether nothing more will come for a call: its last frame is here, or was taken, or nobody wants it.
    pub(super) fn has_ended(&mut self, id: CallId) -> bool {
        self.get(id).is_none_or(|call| call.ended)
    }

    /// Whether what is waited for is here, or will never come: an event of the call; for a `sender` credit for an item of the call's
    /// stream.
    pub(super) fn is_ready(&mut self, id: CallId, sender: bool) -> bool {
        self.get(id).is_none_or(|call| if sender { call.credit > 0 || call.ended } else { !call.arrived.is_empty() })
    }

    /// Whether one of the calls has ended.
    pub(super) fn any_has_ended(&mut self, ids: &[CallId]) -> bool {
        ids.iter().any(|id| self.has_ended(*id))
    }

    /// Forgets a call.
    pub(super) fn end(&mut self, id: CallId) {
        let Some(call) = find(&mut self.calls, id) else { return };
        call.live = false;
        if call.references {
            for event in &call.arrived {
                self.to_release.extend(given_in(&event.head, &event.payload));
            }
        }
        if !call.ended && (call.references || !call.given.is_empty()) {
            let given = std::mem::take(&mut call.given);
            self.left.insert(id, GivenUp { references: call.references, given });
            if self.left.len() > MOST_LEFT {
                self.left.pop_first();
            }
        }
        call.given.clear();
        call.arrived.clear();
        // Nothing will come for these threads.
        self.woken.take_in(&mut call.sleepers);
        self.live -= 1;
    }

    /// Wakes the thread when something comes for one of the calls.
    pub(super) fn wait(&mut self, ids: &[CallId], thread: &Thread) {
        for id in ids {
            if let Some(call) = self.get(*id) {
                call.sleepers.push(thread.clone());
            }
        }
    }

    /// Undoes [`Table::wait`].
    pub(super) fn stop_waiting(&mut self, ids: &[CallId], thread: ThreadId) {
        for id in ids {
            if let Some(call) = self.get(*id) {
                call.sleepers.retain(|sleeper| sleeper.id() != thread);
            }
        }
    }

    /// Whether to wake the event loop: calls are ready, and the loop was not told since it last took them.
    pub(super) fn tells_loop(&mut self) -> bool {
        let first = self.told == 0 && !self.ready.is_empty();
        self.told = self.ready.len();
        first
    }

    /// Takes out the calls of the loop for which something has come.
    pub(super) fn take_ready(&mut self) -> Vec<CallId> {
        self.told = 0;
        std::mem::take(&mut self.ready)
    }

    /// Calls under way.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Takes in a frame. If it is for `mine`, and no earlier frame of that call waits, it stays in `arrived`; returns
    /// `true`.
    ///
    /// # Errors
    /// [`Malformed`] if the server sends more than it may.
    pub(super) fn deliver(&mut self, arrived: &mut Option<Incoming>, mine: Option<CallId>) -> Result<bool, Malformed> {
        let Some(event) = arrived else { return Ok(false) };
        let id = CallId::of(event.head.call);
        let ends = event.ends_call();
        // The call has ended here, which the peer could not know yet.
        let Some(call) = find(&mut self.calls, id) else {
            self.note_late(id, event);
            return Ok(false);
        };
        if call.ended {
            return Err(Malformed("the server sent more after the end of a call"));
        }
        call.ended = ends;
        if ends && call.heads > 0 {
            // A peer that has sent metadata of a call has begun it, whatever it says of that later.
            event.head.flags &= !flags::UNBEGUN;
        }
        if event.is_unread() {
            self.refused.append(&mut call.given);
        } else if !call.given.is_empty() {
            // The peer has begun the call, and holds what was given.
            call.given.clear();
        }
        match event.head.kind {
            Kind::Credit => {
                let granted = event.payload.inline().and_then(granted).unwrap_or(0);
                call.credit = call.credit.saturating_add(granted);
            }
            Kind::Item if call.allowance <= 0 => return Err(Malformed("the server sent more items than it may")),
            Kind::Head if call.heads == MOST_HEADS => {
                return Err(Malformed("the server sent initial metadata too often"));
            }
            kind => {
                call.heads += u8::from(kind == Kind::Head);
                if kind == Kind::Item {
                    call.allowance -= cost(event.payload.len());
                }
                if mine == Some(id) && call.arrived.is_empty() {
                    if ends {
                        self.end(id);
                    }
                    return Ok(true);
                }
                call.arrived.extend(arrived.take());
            }
        }
        self.woken.take_in(&mut call.sleepers);
        if call.in_loop {
            self.ready.push(id);
        }
        Ok(false)
    }

    /// Looks for references in what comes for a call that was given up.
    #[cold]
    fn note_late(&mut self, id: CallId, event: &Incoming) {
        let Some(left) = self.left.get_mut(&id) else { return };
        if left.references {
            self.to_release.extend(given_in(&event.head, &event.payload));
        }
        if event.is_unread() {
            self.refused.append(&mut left.given);
        }
        if event.ends_call() {
            self.left.remove(&id);
        }
    }

    /// Takes out the references that nobody will read: the peer must learn that nobody holds them.
    pub(super) fn take_to_release(&mut self) -> Vec<NonZeroU64> {
        std::mem::take(&mut self.to_release)
    }

    /// Takes the credit for an item that is about to be sent, and notes the references given in it. `false` if the call has
    /// ended, `None` if there is no credit now.
    pub(super) fn pay(&mut self, id: CallId, item: usize, given: &[NonZeroU64]) -> Option<bool> {
        let Some(call) = self.get(id).filter(|call| !call.ended) else { return Some(false) };
        if call.credit <= 0 {
            return None;
        }
        call.credit -= cost(item);
        call.given.extend_from_slice(given);
        Some(true)
    }

    /// Forgets references given in a message that was not sent.
    pub(super) fn ungive(&mut self, id: CallId, given: &[NonZeroU64]) {
        let Some(call) = self.get(id) else { return };
        for one in given {
            if let Some(at) = call.given.iter().rposition(|other| other == one) {
                call.given.swap_remove(at);
            }
        }
    }

    /// Takes out the references that were given with calls that the peer has not read.
    pub(super) fn take_refused(&mut self) -> Vec<NonZeroU64> {
        std::mem::take(&mut self.refused)
    }

    /// Takes the oldest event of a call. The call is forgotten with its last one.
    pub(super) fn take(&mut self, id: CallId) -> Option<Incoming> {
        let event = self.get(id)?.arrived.pop_front()?;
        if event.ends_call() {
            self.end(id);
        }
        Some(event)
    }

    /// Ends every call with `failure`, now and from now on; the peer has certainly not begun with those that are `unbegun`.
    pub(super) fn die(&mut self, failure: &Failure, unbegun: Unbegun<'_>) {
        if self.dead.is_some() {
            return;
        }
        self.dead = Some(failure.clone());
        let ids: Vec<CallId> = self.calls.iter().filter(|call| call.live).map(|call| call.id).collect();
        for id in ids {
            let end = if unbegun.has(id.number()) { Incoming::refused } else { Incoming::local };
            // A call that has ended keeps its own end.
            let _ = self.deliver(&mut Some(end(id.number(), failure)), None);
        }
    }
}

/// Threads that are woken when it is dropped.
#[derive(Debug, Default)]
pub(in crate::client) struct Woken(SmallVec<[Thread; 2]>);

impl Woken {
    #[inline]
    pub(in crate::client) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(in crate::client) fn wake(&mut self) {
        self.0.drain(..).for_each(|thread| thread.unpark());
    }

    /// Takes over all threads of a list.
    #[inline]
    pub(in crate::client) fn take_in(&mut self, threads: &mut SmallVec<impl Array<Item = Thread>>) {
        if !threads.is_empty() {
            self.0.extend(threads.drain(..));
        }
    }
}

impl Drop for Woken {
    #[inline]
    fn drop(&mut self) {
        self.wake();
    }
}

/// Where a call of that number is, if it is under way.
#[inline]
fn index(calls: &[Call], id: CallId) -> usize {
    // A power of two, or 0: then nothing is found there.
    id.0 as usize & calls.len().wrapping_sub(1)
}

#[inline]
fn find(calls: &mut [Call], id: CallId) -> Option<&mut Call> {
    let index = index(calls, id);
    calls.get_mut(index).filter(|call| call.live && call.id == id)
}

#[cfg(test)]
mod tests {
    use nearcall_wire::FrameHead;

    use super::*;
    #[test]
    fn a_late_frame_does_not_reach_the_next_call_in_its_place() {
        let mut table = Table::default();
        let old = table.begin(false, false, &[]).expect("alive");
        table.end(old);
        let new = loop {
            let id = table.begin(false, false, &[]).expect("alive");
            if index(&table.calls, id) == index(&table.calls, old) {
                break id;
            }
            table.end(id);
        };
        let late = Incoming::local(old.number(), &Failure::new(Failure::UNKNOWN, "late"));
        assert_eq!(table.deliver(&mut Some(late), Some(new)), Ok(false));
        assert!(table.take(new).is_none());
    }

    #[test]
    fn calls_that_are_given_up_in_a_row_have_numbers_of_their_own() {
        let mut table = Table::default();
        let stays = table.begin(false, false, &[]).expect("alive");
        let mut last = stays.number();
        for _ in 0..100_000 {
            let id = table.begin(false, false, &[]).expect("alive");
            assert!(id.number() > last, "the late reply to an earlier call would be that to this one");
            last = id.number();
            table.end(id);
        }
        assert!(last < 150_000, "all but the one place that is taken is used");
        assert!(table.calls.len() <= 4 && table.get(stays).is_some());
    }

    #[test]
    fn numbers_are_counted_on_from_the_beginning_but_for_those_that_are_in_use() {
        let mut table = Table { last: CallId(NO_CALL - 2), ..Table::default() };
        let mut begin = || table.begin(false, false, &[]).expect("alive").number();
        assert_eq!([begin(), begin(), begin()], [NO_CALL - 1, 0, 1]);
        table.last = CallId(NO_CALL - 2);
        let fourth = table.begin(false, false, &[]).expect("alive");
        assert_eq!((fourth.number(), table.live()), (2, 4));
    }

    #[test]
    fn many_calls_are_found_and_no_more_than_may_be() {
        let mut table = Table::default();
        let calls: Vec<CallId> = (0..5000).map(|_| table.begin(false, false, &[]).expect("alive")).collect();
        assert!(calls.iter().all(|id| table.get(*id).is_some_and(|call| call.id == *id)));
        for id in calls {
            table.end(id);
        }
        assert!(table.begin(false, false, &[]).is_ok() && table.live() == 1);
        let mut full = Table { live: MOST_CALLS, ..Table::default() };
        assert_eq!(full.begin(false, false, &[]).expect_err("too many").code, Failure::RESOURCE_EXHAUSTED);
    }

    #[test]
    fn what_is_kept_of_calls_that_were_given_up_is_bounded() {
        let mut table = Table::default();
        for _ in 0..MOST_LEFT + 10 {
            let id = table.begin(false, true, &[]).expect("alive");
            table.end(id);
        }
        assert_eq!(table.left.len(), MOST_LEFT);
    }

    #[test]
    fn the_death_of_the_connection_reaches_every_call_once() {
        let mut table = Table::default();
        let calls: Vec<CallId> = (0..3).map(|_| table.begin(false, false, &[]).expect("alive")).collect();
        let failure = Failure::new(Failure::UNAVAILABLE, "gone");
        table.die(&failure, Unbegun::These(&[calls[1].number()]));
        table.die(&Failure::new(Failure::UNKNOWN, "again"), Unbegun::All);
        for (index, id) in calls.into_iter().enumerate() {
            let event = table.take(id).expect("told");
            assert_eq!(event.failure().expect("a failure"), failure);
            assert_eq!(event.is_unbegun(), index == 1, "only that one has never left");
            assert!(table.take(id).is_none());
        }
        assert_eq!(table.live(), 0);
        assert_eq!(table.begin(false, false, &[]), Err(failure));
    }

    #[test]
    fn after_a_last_goodbye_all_calls_are_unbegun_but_those_that_have_shown_otherwise() {
        let mut table = Table::default();
        let ids: Vec<CallId> = (0..2).map(|_| table.begin(false, false, &[]).expect("alive")).collect();
        let head = Incoming::new(FrameHead::new(Kind::Head, ids[0].number()), &[]);
        table.deliver(&mut Some(head), None).expect("may be sent");
        table.die(&Failure::new(Failure::UNAVAILABLE, "stopped"), Unbegun::All);
        assert_eq!(table.take(ids[0]).expect("metadata").head.kind, Kind::Head);
        assert!(!table.take(ids[0]).expect("its end").is_unbegun());
        assert!(table.take(ids[1]).expect("its end").is_unbegun());
    }

    #[test]
    fn what_was_given_with_a_call_that_nobody_has_read_is_the_givers_again() {
        let given: Vec<NonZeroU64> = (1..=3).map(|id| NonZeroU64::new(id).expect("not 0")).collect();
        let event = |id: CallId, kind: Kind, flags: u8| {
            let mut head = FrameHead::new(kind, id.number());
            head.flags = flags;
            Some(Incoming::new(head, &8u64.to_le_bytes()))
        };
        let mut table = Table::default();
        let mut refused_after = |before: &[(Kind, u8)], gives_up: bool, flags: u8| {
            let id = table.begin(false, false, &given[..1]).expect("alive");
            assert_eq!(table.pay(id, 0, &given[1..]), Some(true));
            table.ungive(id, &given[2..]);
            for &(kind, flags) in before {
                table.deliver(&mut event(id, kind, flags), None).expect("may be sent");
            }
            if gives_up {
                table.end(id);
            }
            table.deliver(&mut event(id, Kind::Error, flags), None).expect("may be sent");
            table.end(id);
            table.take_refused()
        };
        for gives_up in [false, true] {
            assert_eq!(refused_after(&[], gives_up, flags::UNREAD), &given[..2], "once");
            assert_eq!(refused_after(&[], gives_up, 0), [], "it may have been read");
            assert_eq!(refused_after(&[(Kind::Credit, 0)], gives_up, flags::UNREAD), [], "it was begun");
        }
    }

    #[test]
    fn a_server_that_sends_more_than_it_may_is_found_out() {
        let item =
            |id: CallId, kind: Kind, len: usize| Some(Incoming::new(FrameHead::new(kind, id.number()), &vec![0; len]));
        let mut table = Table::default();
        let id = table.begin(false, false, &[]).expect("alive");
        assert!(table.deliver(&mut item(id, Kind::Item, WINDOW as usize - 33), None).is_ok());
        assert!(
            table.deliver(&mut item(id, Kind::Item, WINDOW as usize), None).is_ok(),
            "the last byte may be overdrawn"
        );
        assert!(table.deliver(&mut item(id, Kind::Item, 0), None).is_err());
        table.get(id).expect("alive").allowance += 2 * WINDOW;
        assert!(table.deliver(&mut item(id, Kind::Item, 0), None).is_ok(), "credit was granted");
        assert!(table.deliver(&mut item(id, Kind::End, 0), None).is_ok());
        assert!(table.deliver(&mut item(id, Kind::End, 0), None).is_err(), "it had ended");
    }
}

//! The outgoing queue of a connection.
//!
//! A frame is written directly, under a lock that is held only for the copy. Frames without room wait here, in order,
//! until a thread that sees that the peer reads again [flushes](Outbox::flush) them. No thread waits while it holds the
//! lock. A sender that is willing to wait can send a long frame without a copy: meanwhile, other frames queue up behind
//! it.
//!
//! The receiving thread may know that more requests have arrived. Then short frames are kept back even with room, and
//! go out together: with the last reply, when the first is [too old](TOGETHER_NS), or when the receiving thread says
//! so.

use crate::sync::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use nearcall_platform::lock::Mutex;

use crate::budget::{Account, Charge};
use crate::errors::LinkError;
use crate::link::{Flushed, PART, Room, Sent, TOGETHER_BYTES, TOGETHER_NS};

/// What a waiting frame costs in addition to its bytes.
const OVERHEAD: usize = 64;
/// Frames up to this many bytes may wait whatever the budget says: they end calls or keep streams going, and are few.
const SMALL: usize = 4096;
/// A socket may take only the start of a longer frame, and the rest has to wait: the budget must have room for the
/// frame before it begins.
const LONG: usize = 256 << 10;

/// A frame to be written: its head, and its payload in pieces.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) payload: &'a [&'a [u8]],
    pub(crate) payload_len: usize,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(head: &'a [u8], payload: &'a [&'a [u8]]) -> Self {
        Self { head, payload, payload_len: payload.iter().map(|piece| piece.len()).sum() }
    }
}

/// Writes frames: a ring, or a socket.
pub(crate) trait Sink {
    /// Whether it writes bytes end to end, so that waiting frames may be joined and written in one piece.
    const JOINS: bool = false;

    /// Nanoseconds on the monotonic clock, if it joins frames.
    fn now(&self) -> u64 {
        0
    }

    /// Writes as much of a frame as there is room for, from byte `sent` on, and adds the bytes written to `sent`.
    /// Whether the whole frame is out. Never waits.
    ///
    /// # Errors
    /// An error that spares the connection if nothing of the frame is out; else the connection is gone.
    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize) -> Result<bool, LinkError>;

    /// There was no room for a frame: asks the reader to tell when there is. Whether to look for room once more.
    fn ask_for_room(&mut self) -> bool {
        false
    }
}

/// A waiting frame.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    head: usize,
    sent: usize,
    charge: Charge,
}

#[derive(Debug)]
struct State<S> {
    sink: S,
    frames: VecDeque<Kept>,
    /// A sender is in the middle of a frame that it writes itself.
    lent: bool,
    closed: bool,
    /// The receiving thread has more requests at hand.
    corked: bool,
    /// Since when the waiting frames are kept back, if they do not wait for room.
    kept_since: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Outbox<S> {
    state: Mutex<State<S>>,
    queued: AtomicUsize,
    account: Arc<Account>,
}

impl<S: Sink> State<S> {
    #[inline]
    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize) -> Result<bool, LinkError> {
        let put = self.sink.put(frame, sent);
        if put.as_ref().is_err_and(|error| !error.spares_connection()) {
            // The reader would take the next frame for the rest of this one.
            self.closed = true;
        }
        put
    }

    /// Like `put`, for a frame whose sender does not wait: if there is no room, asks the reader to tell when there is.
    #[inline]
    fn put_or_ask(&mut self, frame: &Frame<'_>, sent: &mut usize) -> Result<bool, LinkError> {
        Ok(self.put(frame, sent)? || (self.sink.ask_for_room() && self.put(frame, sent)?))
    }
}

impl<S: Sink> Outbox<S> {
    pub(crate) fn new(sink: S, account: Arc<Account>) -> Self {
        let state =
            State { sink, frames: VecDeque::new(), lent: false, closed: false, corked: false, kept_since: None };
        Self { state: Mutex::new(state), queued: AtomicUsize::new(0), account }
    }

    /// Bytes that wait.
    pub(crate) fn queued(&self) -> usize {
        // Relaxed: a hint; the thread that flushes takes the lock.
        self.queued.load(Ordering::Relaxed)
    }

    /// Looks at the sink, unless another thread uses it now.
    pub(crate) fn peek<T>(&self, look: impl FnOnce(&mut S) -> T) -> Option<T> {
        self.state.try_lock().map(|mut state| look(&mut state.sink))
    }

    /// Drops what waits, and accepts no more frames.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let frames = std::mem::take(&mut state.frames);
        self.queued.store(0, Ordering::Relaxed);
        drop(state);
        drop(frames);
    }

    pub(crate) fn send(&self, frame: &Frame<'_>, room: Room<'_>) -> Result<Sent, LinkError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(LinkError::Closed);
        }
        let together = matches!(room, Room::Together);
        let room = if together { Room::Later } else { room };
        if S::JOINS
            && (state.corked || together || state.kept_since.is_some())
            && let Some(sent) = self.send_together(&mut state, frame, &room, together)?
        {
            return Ok(sent);
        }
        if state.lent || !state.frames.is_empty() {
            drop(state);
            return self.send_behind(frame, room);
        }
        if frame.payload_len > LONG && matches!(room, Room::Later) && !self.account.allows(frame.payload_len) {
            return Err(over_budget(frame.payload_len));
        }
        let mut sent = 0;
        let put = match room {
            Room::Wait(_) => state.put(frame, &mut sent),
            Room::Now | Room::Later | Room::Together => state.put_or_ask(frame, &mut sent),
        };
        match put {
            Ok(true) => Ok(Sent::Out),
            Ok(false) => {
                state.lent = sent > 0 && matches!(room, Room::Wait(_));
                match room {
                    Room::Wait(blocked) => {
                        drop(state);
                        self.send_patiently(frame, sent, blocked)
                    }
                    Room::Now if sent == 0 => Err(LinkError::Full),
                    Room::Now | Room::Later | Room::Together => self.keep(&mut state, frame, sent, false),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// More frames are to come: short ones that can [wait](Room::Later) are kept back, to go out together.
    pub(crate) fn cork(&self) {
        self.state.lock().corked = true;
    }

    /// The next frame is the last for now.
    pub(crate) fn uncork(&self) {
        self.state.lock().corked = false;
    }

    /// Sends frames that are kept back, as far as there is room. No more frames are kept back.
    pub(crate) fn release(&self) -> Result<Sent, LinkError> {
        let mut state = self.state.lock();
        state.corked = false;
        self.release_from(&mut state)
    }

    fn release_from(&self, state: &mut State<S>) -> Result<Sent, LinkError> {
        let all = state.kept_since.take().is_none() || self.drain(state, usize::MAX)? == Flushed::All;
        Ok(if all { Sent::Out } else { Sent::Queued })
    }

    /// Keeps a short frame back behind others, or sends it with them, while more is to come from the receiving thread,
    /// or from the sender, who then has to release it. `None` if the frame has to go by itself: then the only frames in
    /// front of it wait for room.
    fn send_together(
        &self,
        state: &mut State<S>,
        frame: &Frame<'_>,
        room: &Room<'_>,
        together: bool,
    ) -> Result<Option<Sent>, LinkError> {
        let len = frame.head.len() + frame.payload_len;
        let waits_for_room = state.lent || (state.kept_since.is_none() && !state.frames.is_empty());
        if waits_for_room || len > SMALL || !matches!(room, Room::Later) {
            self.release_from(state)?;
            return Ok(None);
        }
        match state.frames.back_mut() {
            Some(kept) => {
                kept.bytes.extend_from_slice(frame.head);
                frame.payload.iter().for_each(|piece| kept.bytes.extend_from_slice(piece));
                kept.charge.grow(len);
                self.queued.fetch_add(len, Ordering::Relaxed);
            }
            None => drop(self.keep(state, frame, 0, false)?),
        }
        let now = state.sink.now();
        let since = *state.kept_since.get_or_insert(now);
        let many = state.frames.back().is_some_and(|kept| kept.bytes.len() >= TOGETHER_BYTES);
        if (state.corked || together) && !many && now.saturating_sub(since) < TOGETHER_NS {
            return Ok(Some(if together { Sent::Kept } else { Sent::Out }));
        }
        self.release_from(state).map(Some)
    }

    /// Sends a frame while other frames wait, or another sender writes.
    #[cold]
    fn send_behind(&self, frame: &Frame<'_>, room: Room<'_>) -> Result<Sent, LinkError> {
        match room {
            Room::Wait(blocked) => self.send_patiently(frame, 0, blocked),
            Room::Now => {
                let mut state = self.state.lock();
                state.kept_since = None;
                if !state.lent && self.drain(&mut state, usize::MAX)? == Flushed::All {
                    drop(state);
                    self.send(frame, Room::Now)
                } else {
                    Err(LinkError::Full)
                }
            }
            Room::Later | Room::Together => {
                let mut state = self.state.lock();
                if state.closed {
                    return Err(LinkError::Closed);
                }
                if !state.lent && state.frames.is_empty() {
                    drop(state);
                    return self.send(frame, Room::Later);
                }
                self.keep(&mut state, frame, 0, false)
            }
        }
    }

    /// Sends the rest of a frame, of which `sent` bytes are out, as `blocked` makes room. In the middle of the frame,
    /// `lent` is set.
    #[cold]
    fn send_patiently(
        &self,
        frame: &Frame<'_>,
        mut sent: usize,
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<Sent, LinkError> {
        loop {
            let waited = blocked();
            let mut state = self.state.lock();
            if state.closed {
                return Err(LinkError::Closed);
            }
            let begun = sent > 0;
            if let Err(why) = waited {
                if !begun {
                    return Err(why);
                }
                // A frame that has begun must end: the rest waits, in front of later frames.
                state.lent = false;
                return self.keep(&mut state, frame, sent, true);
            }
            if !begun && (state.lent || self.drain(&mut state, usize::MAX)? != Flushed::All) {
                continue;
            }
            match state.put(frame, &mut sent) {
                Ok(true) => {
                    state.lent = false;
                    let all = self.drain(&mut state, usize::MAX)? == Flushed::All;
                    return Ok(if all { Sent::Out } else { Sent::Queued });
                }
                Ok(false) => state.lent = sent > 0,
                Err(error) => {
                    state.lent = false;
                    return Err(error);
                }
            }
        }
    }

    /// Keeps the part of a frame that is not sent.
    #[cold]
    fn keep(&self, state: &mut State<S>, frame: &Frame<'_>, sent: usize, in_front: bool) -> Result<Sent, LinkError> {
        let len = frame.head.len() + frame.payload_len;
        let cost = len + OVERHEAD;
        let charge = if sent > 0 || len <= SMALL {
            self.account.charge_anyway(cost)
        } else {
            self.account.charge(cost).ok_or_else(|| over_budget(len))?
        };
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(len).is_err() {
            let why = LinkError::Exhausted(format!("no memory for a message of {len} bytes that has to wait"));
            if sent > 0 {
                // Half a frame is out, so it cannot be taken back.
                state.closed = true;
                return Err(LinkError::Broken(why.to_string()));
            }
            return Err(why);
        }
        bytes.extend_from_slice(frame.head);
        frame.payload.iter().for_each(|piece| bytes.extend_from_slice(piece));
        self.queued.fetch_add(bytes.len() + OVERHEAD, Ordering::Relaxed);
        let kept = Kept { bytes, head: frame.head.len(), sent, charge };
        if in_front {
            state.frames.push_front(kept);
        } else {
            state.frames.push_back(kept);
        }
        Ok(Sent::Queued)
    }

    /// Sends waiting frames as far as there is room, or a part of them, so that a thread that flushes many connections
    /// can turn to the others first. Returns what is left for the caller. If a sender is in the middle of a frame, it
    /// flushes the rest itself.
    pub(crate) fn flush(&self) -> Result<Flushed, LinkError> {
        self.flush_and_tell().map(|(done, _)| done)
    }

    /// Like `flush`; also whether anything waited, so that the reader may have to be told.
    pub(crate) fn flush_and_tell(&self) -> Result<(Flushed, bool), LinkError> {
        let mut state = self.state.lock();
        state.kept_since = None;
        let waited = !state.frames.is_empty();
        let done = if state.lent { Flushed::All } else { self.drain(&mut state, PART)? };
        Ok((done, waited))
    }

    /// Sends waiting frames as far as there is room, and at most `most` bytes if frames may be cut.
    fn drain(&self, state: &mut State<S>, most: usize) -> Result<Flushed, LinkError> {
        let (mut asked, mut left) = (false, if S::JOINS { most } else { usize::MAX });
        while let Some(kept) = state.frames.front_mut() {
            let whole = kept.bytes.len();
            let end = whole.min(kept.sent.saturating_add(left));
            let head = kept.head.min(end);
            let payload = [&kept.bytes[head..end]];
            let frame = Frame::new(&kept.bytes[..head], &payload);
            left -= end - kept.sent;
            match state.sink.put(&frame, &mut kept.sent) {
                Ok(true) if end < whole => return Ok(Flushed::Part),
                Ok(true) => {
                    self.queued.fetch_sub(kept.bytes.len() + OVERHEAD, Ordering::Relaxed);
                    state.frames.pop_front();
                    asked = false;
                }
                Ok(false) if !asked && state.sink.ask_for_room() => asked = true,
                Ok(false) => return Ok(Flushed::Full),
                // The sender has returned already, so the frame must not be lost in silence.
                Err(error) => {
                    state.closed = true;
                    return Err(if error.spares_connection() { LinkError::Broken(error.to_string()) } else { error });
                }
            }
        }
        Ok(Flushed::All)
    }
}

fn over_budget(len: usize) -> LinkError {
    LinkError::Exhausted(format!(
        "the message has {len} bytes, and what waits for this client to read it is all that may wait; read faster, or \
         raise the server's max_memory"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    /// The writes, one entry for each, and the time of the test's clock.
    #[derive(Default)]
    struct Pipe {
        writes: Vec<Vec<u8>>,
        now: u64,
        full: bool,
    }

    impl Sink for Pipe {
        const JOINS: bool = true;

        fn now(&self) -> u64 {
            self.now
        }

        fn put(&mut self, frame: &Frame<'_>, sent: &mut usize) -> Result<bool, LinkError> {
            if self.full {
                return Ok(false);
            }
            let all = [frame.head, &frame.payload.concat()].concat();
            self.writes.push(all[*sent..].to_vec());
            *sent = all.len();
            Ok(true)
        }
    }

    fn outbox() -> (Outbox<Pipe>, Arc<Budget>) {
        let budget = Budget::new(1 << 20);
        (Outbox::new(Pipe::default(), Account::of(&budget, 1 << 10)), budget)
    }

    fn send(outbox: &Outbox<Pipe>, name: &str, room: Room<'_>) -> Sent {
        outbox.send(&Frame::new(name.as_bytes(), &[b"."]), room).expect("it is open")
    }

    fn written(outbox: &Outbox<Pipe>) -> Vec<String> {
        let writes = outbox.peek(|pipe| std::mem::take(&mut pipe.writes)).expect("nobody uses it");
        writes.into_iter().map(|write| String::from_utf8(write).expect("names")).collect()
    }

    #[test]
    fn replies_go_out_with_the_last_one() {
        let (outbox, budget) = outbox();
        outbox.cork();
        assert_eq!([send(&outbox, "a", Room::Later), send(&outbox, "b", Room::Later)], [Sent::Out; 2]);
        assert!(written(&outbox).is_empty() && outbox.queued() > 0);
        outbox.uncork();
        assert!(written(&outbox).is_empty(), "one is to come");
        assert_eq!(send(&outbox, "c", Room::Later), Sent::Out);
        assert_eq!(written(&outbox), ["a.b.c."]);
        assert_eq!((outbox.queued(), budget.used()), (0, 0));
        send(&outbox, "d", Room::Later);
        assert_eq!(written(&outbox), ["d."], "a single one does not wait");
    }

    #[test]
    fn they_go_out_when_nothing_more_is_at_hand() {
        let (outbox, _) = outbox();
        outbox.cork();
        send(&outbox, "a", Room::Later);
        assert_eq!(outbox.release(), Ok(Sent::Out));
        send(&outbox, "b", Room::Later);
        assert_eq!(outbox.release(), Ok(Sent::Out));
        assert_eq!(written(&outbox), ["a.", "b."]);
    }

    #[test]
    fn they_go_out_when_the_first_is_old_or_there_are_many() {
        let (outbox, _) = outbox();
        outbox.cork();
        send(&outbox, "a", Room::Later);
        outbox.peek(|pipe| pipe.now += TOGETHER_NS);
        send(&outbox, "b", Room::Later);
        assert_eq!(written(&outbox), ["a.b."]);
        let name = "n".repeat(SMALL - 1);
        for _ in 0..TOGETHER_BYTES / SMALL - 1 {
            send(&outbox, &name, Room::Later);
        }
        assert!(written(&outbox).is_empty());
        send(&outbox, &name, Room::Later);
        assert_eq!(written(&outbox).len(), 1);
    }

    #[test]
    fn items_go_out_with_those_that_follow() {
        let (outbox, budget) = outbox();
        assert_eq!([send(&outbox, "a", Room::Together), send(&outbox, "b", Room::Together)], [Sent::Kept; 2]);
        assert!(written(&outbox).is_empty() && outbox.queued() > 0);
        outbox.peek(|pipe| pipe.now += TOGETHER_NS);
        assert_eq!(send(&outbox, "c", Room::Together), Sent::Out, "the first has waited for long");
        assert_eq!(written(&outbox), ["a.b.c."]);
        send(&outbox, "d", Room::Together);
        assert_eq!(send(&outbox, "e", Room::Later), Sent::Out, "what waits for nothing takes them along");
        assert_eq!(written(&outbox), ["d.e."]);
        send(&outbox, "f", Room::Together);
        assert_eq!(outbox.release(), Ok(Sent::Out));
        assert_eq!(written(&outbox), ["f."]);
        outbox.peek(|pipe| pipe.full = true);
        send(&outbox, "g", Room::Together);
        assert_eq!(outbox.release(), Ok(Sent::Queued), "without room they wait as others do");
        assert_eq!(send(&outbox, "h", Room::Together), Sent::Queued);
        outbox.peek(|pipe| pipe.full = false);
        assert_eq!(outbox.flush(), Ok(Flushed::All));
        assert_eq!(written(&outbox).concat(), "g.h.");
        assert_eq!((outbox.queued(), budget.used()), (0, 0));
    }

    #[test]
    fn what_cannot_wait_goes_behind_them() {
        let (outbox, budget) = outbox();
        outbox.cork();
        send(&outbox, "a", Room::Later);
        send(&outbox, "b", Room::Wait(&mut || panic!("there is room")));
        send(&outbox, "c", Room::Later);
        send(&outbox, "d", Room::Now);
        send(&outbox, "e", Room::Later);
        send(&outbox, &"f".repeat(SMALL), Room::Later);
        assert_eq!(written(&outbox).concat().replace('f', ""), "a.b.c.d.e..");
        assert_eq!((outbox.queued(), budget.used()), (0, 0));
    }

    #[test]
    fn what_waits_goes_out_in_parts() {
        let budget = Budget::new(64 << 20);
        let outbox = Outbox::new(Pipe::default(), Account::of(&budget, 8 << 20));
        outbox.peek(|pipe| pipe.full = true);
        let long = vec![b'l'; 3 * PART];
        assert_eq!(outbox.send(&Frame::new(b"one", &[&long]), Room::Later), Ok(Sent::Queued));
        for name in ["two", "three"] {
            assert_eq!(send(&outbox, name, Room::Later), Sent::Queued);
        }
        outbox.peek(|pipe| pipe.full = false);
        let mut all = String::new();
        for done in [Flushed::Part, Flushed::Part, Flushed::Part, Flushed::All] {
            assert_eq!(outbox.flush(), Ok(done));
            let part = written(&outbox).concat();
            assert!(part.len() <= PART);
            all += &part;
        }
        assert_eq!(all.replace('l', ""), "onetwo.three.");
        assert_eq!((all.len(), outbox.queued(), budget.used()), (3 + long.len() + 10, 0, 0));
    }

    #[test]
    fn without_room_they_wait_as_others_do() {
        let (outbox, budget) = outbox();
        outbox.peek(|pipe| pipe.full = true);
        outbox.cork();
        send(&outbox, "a", Room::Later);
        assert_eq!(outbox.release(), Ok(Sent::Queued));
        outbox.cork();
        assert_eq!(send(&outbox, "b", Room::Later), Sent::Queued);
        outbox.peek(|pipe| pipe.full = false);
        assert_eq!(outbox.flush(), Ok(Flushed::All));
        assert_eq!(written(&outbox).concat(), "a.b.");
        assert_eq!((outbox.queued(), budget.used()), (0, 0));
    }
}

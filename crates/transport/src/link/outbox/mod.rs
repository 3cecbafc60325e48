//! The outgoing queue of a connection.
//!
//! A frame is written directly, under a lock that is held only for the copy. Frames without room wait here, in order,
//! until a thread that sees that the peer reads again [flushes](Outbox::flush) them. No thread waits while it holds the
//! lock, and none holds it for longer than a [`PART`] of a frame takes: the thread that receives for all connections
//! takes it, too. The sender of a long frame has the turn until the frame is out or copied: meanwhile, other frames queue
//! up behind it. A sender that is willing to wait for room can so send a long frame without a copy.
//!
//! The receiving thread may know that more requests have arrived. Then short frames are kept back even with room, and
//! go out together: with the last reply, when the first is [too old](TOGETHER_NS), or when the receiving thread says
//! so.

use crate::sync::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use nearcall_platform::freeing;
use nearcall_platform::lock::{Mutex, MutexGuard};

use crate::errors::LinkError;
use crate::limits::budget::{Account, Charge};
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

    /// Writes as much of a frame as there is room for, from byte `sent` on, and adds the bytes written to `sent`. If it
    /// joins frames, writes at most `most` bytes. Returns what is left of the frame. Never waits.
    ///
    /// # Errors
    /// An error that spares the connection if nothing of the frame is out; else the connection is gone.
    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize, most: usize) -> Result<Flushed, LinkError>;

    /// There was no room for a frame: asks the reader to tell when there is. Whether to look for room once more.
    fn ask_for_room(&mut self) -> bool {
        false
    }
}

/// A waiting frame.
#[derive(Debug)]
struct WaitingFrame {
    bytes: Vec<u8>,
    head: usize,
    sent: usize,
    charge: Charge,
}

impl WaitingFrame {
    /// Nobody needs it any more. Who comes here may receive for all clients, and hold the lock.
    fn free(self) {
        let len = self.bytes.len();
        freeing::free(self.bytes, len);
    }
}

#[derive(Debug)]
struct OutboxState<S> {
    sink: S,
    frames: VecDeque<WaitingFrame>,
    /// Bytes that wait. See [`Outbox::publish`].
    waiting: usize,
    /// A sender is in the middle of a frame that it writes or copies itself.
    sending: bool,
    /// A thread came to flush meanwhile, and left frames here.
    missed: bool,
    closed: bool,
    /// The receiving thread has more requests at hand.
    corked: bool,
    /// Since when the waiting frames are kept back, if they do not wait for room.
    kept_since: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Outbox<S> {
    state: Mutex<OutboxState<S>>,
    queued: AtomicUsize,
    account: Arc<Account>,
}

impl<S: Sink> OutboxState<S> {
    #[inline]
    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize) -> Result<Flushed, LinkError> {
        let put = self.sink.put(frame, sent, PART);
        if put.as_ref().is_err_and(|error| !error.spares_connection()) {
            // The reader would take the next frame for the rest of this one.
            self.closed = true;
        }
        put
    }
}

/// Writes a frame, in parts if it is long: then the sender has the turn, and others may have the lock in between. The
/// sender still has the turn afterwards. If `asks` and there is no room, asks the reader to tell when there is. Whether
/// the whole frame is out.
#[inline]
fn put<S: Sink>(
    state: &mut MutexGuard<'_, OutboxState<S>>,
    frame: &Frame<'_>,
    sent: &mut usize,
    asks: bool,
) -> Result<bool, LinkError> {
    let mut asked = !asks;
    loop {
        match state.put(frame, sent)? {
            Flushed::All => return Ok(true),
            Flushed::Full if asked || !state.sink.ask_for_room() => return Ok(false),
            Flushed::Full => asked = true,
            Flushed::Part => {
                state.sending = true;
                MutexGuard::bump(state);
                if state.closed {
                    return Err(LinkError::Closed);
                }
            }
        }
    }
}

impl<S: Sink> Outbox<S> {
    pub(crate) fn new(sink: S, account: Arc<Account>) -> Self {
        let state = OutboxState {
            sink,
            frames: VecDeque::new(),
            waiting: 0,
            sending: false,
            missed: false,
            closed: false,
            corked: false,
            kept_since: None,
        };
        Self { state: Mutex::new(state), queued: AtomicUsize::new(0), account }
    }

    /// What is kept on the connection, both of what has come and of what is to go.
    pub(crate) fn account(&self) -> &Account {
        &self.account
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

    /// Looks at the sink. Waits for a thread that uses it now.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        look(&mut self.state.lock().sink)
    }

    /// Drops what waits, and accepts no more frames.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let frames = std::mem::take(&mut state.frames);
        state.waiting = 0;
        self.publish(&state);
        drop(state);
        frames.into_iter().for_each(WaitingFrame::free);
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
        if state.sending || !state.frames.is_empty() {
            drop(state);
            return self.send_behind(frame, room);
        }
        if frame.payload_len > LONG && matches!(room, Room::Later) && !self.account.allows(frame.payload_len) {
            return Err(self.over_budget(frame.payload_len));
        }
        let mut sent = 0;
        match put(&mut state, frame, &mut sent, !matches!(room, Room::Wait(_))) {
            Ok(true) if state.sending => self.end_turn(&mut state, PART),
            Ok(true) => Ok(Sent::Out),
            Ok(false) => match room {
                Room::Wait(blocked) => {
                    state.sending = sent > 0;
                    drop(state);
                    self.send_patiently(frame, sent, blocked)
                }
                Room::Now if sent == 0 => Err(LinkError::Full),
                Room::Now | Room::Later | Room::Together => self.keep(state, frame, sent),
            },
            Err(error) => {
                state.sending = false;
                Err(error)
            }
        }
    }

    /// The sender of a long frame gives the turn back, and sends what has queued up behind the frame, at most `most`
    /// bytes if frames may be cut.
    #[cold]
    fn end_turn(&self, state: &mut OutboxState<S>, most: usize) -> Result<Sent, LinkError> {
        state.sending = false;
        let missed = std::mem::take(&mut state.missed);
        Ok(match self.drain(state, most)? {
            _ if missed => Sent::LookAgain,
            Flushed::All => Sent::Out,
            Flushed::Part | Flushed::Full => Sent::Queued,
        })
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

    fn release_from(&self, state: &mut OutboxState<S>) -> Result<Sent, LinkError> {
        let all = state.kept_since.take().is_none() || self.drain(state, usize::MAX)? == Flushed::All;
        Ok(if all { Sent::Out } else { Sent::Queued })
    }

    /// Keeps a short frame back behind others, or sends it with them, while more is to come from the receiving thread,
    /// or from the sender, who then has to release it. `None` if the frame has to go by itself: then the only frames in
    /// front of it wait for room.
    fn send_together(
        &self,
        state: &mut OutboxState<S>,
        frame: &Frame<'_>,
        room: &Room<'_>,
        together: bool,
    ) -> Result<Option<Sent>, LinkError> {
        let len = frame.head.len() + frame.payload_len;
        let waits_for_room = state.sending || (state.kept_since.is_none() && !state.frames.is_empty());
        if waits_for_room || len > SMALL || !matches!(room, Room::Later) {
            self.release_from(state)?;
            return Ok(None);
        }
        if let Some(kept) = state.frames.back_mut() {
            kept.bytes.extend_from_slice(frame.head);
            frame.payload.iter().for_each(|piece| kept.bytes.extend_from_slice(piece));
            kept.charge.grow(len);
            state.waiting += len;
        } else {
            let kept = self.copy(frame, 0)?;
            state.queue(kept);
        }
        let now = state.sink.now();
        let since = *state.kept_since.get_or_insert(now);
        let many = state.frames.back().is_some_and(|kept| kept.bytes.len() >= TOGETHER_BYTES);
        if (state.corked || together) && !many && now.saturating_sub(since) < TOGETHER_NS {
            self.publish(state);
            return Ok(Some(if together { Sent::KeptBack } else { Sent::Out }));
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
                let waited = !state.frames.is_empty();
                if !state.sending && self.drain(&mut state, usize::MAX)? == Flushed::All {
                    drop(state);
                    told_anew_if(waited, self.send(frame, Room::Now))
                } else {
                    Err(LinkError::Full)
                }
            }
            Room::Later | Room::Together => {
                let state = self.state.lock();
                if state.closed {
                    return Err(LinkError::Closed);
                }
                if !state.sending && state.frames.is_empty() {
                    drop(state);
                    return self.send(frame, Room::Later);
                }
                self.keep(state, frame, 0)
            }
        }
    }

    /// Sends the rest of a frame, of which `sent` bytes are out, as `blocked` makes room. In the middle of the frame,
    /// `sending` is set.
    #[cold]
    fn send_patiently(
        &self,
        frame: &Frame<'_>,
        mut sent: usize,
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<Sent, LinkError> {
        let mut drains = false;
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
                return self.keep(state, frame, sent);
            }
            drains |= !begun && !state.sending && !state.frames.is_empty();
            if !begun && (state.sending || self.drain(&mut state, usize::MAX)? != Flushed::All) {
                continue;
            }
            match put(&mut state, frame, &mut sent, false) {
                Ok(true) => return told_anew_if(drains, self.end_turn(&mut state, usize::MAX)),
                Ok(false) => state.sending = sent > 0,
                Err(error) => {
                    state.sending = false;
                    return Err(error);
                }
            }
        }
    }

    /// Keeps the part of a frame that is not sent: in front of the others if it has begun, else behind them.
    #[cold]
    fn keep(
        &self,
        mut state: MutexGuard<'_, OutboxState<S>>,
        frame: &Frame<'_>,
        sent: usize,
    ) -> Result<Sent, LinkError> {
        let is_long = frame.payload_len > PART;
        let kept = if is_long {
            // Others need not wait for the copy. Nothing may come between the parts of a frame.
            state.sending |= sent > 0;
            MutexGuard::unlocked(&mut state, || self.copy(frame, sent))
        } else {
            self.copy(frame, sent)
        };
        // Whoever has sent a part has the turn.
        let in_turn = sent > 0 && state.sending;
        let kept = match kept {
            Ok(_) if state.closed => Err(LinkError::Closed),
            Err(why) if sent > 0 => {
                // Half a frame is out, so it cannot be taken back.
                state.closed = true;
                Err(LinkError::Broken(why.to_string()))
            }
            kept => kept,
        };
        if kept.is_err() && in_turn {
            state.sending = false;
        }
        state.queue(kept?);
        if in_turn {
            return self.end_turn(&mut state, PART);
        }
        // There may have been room for a moment, while it was copied and nothing waited.
        let is_only = is_long && !state.sending && state.frames.len() == 1;
        if is_only && self.drain(&mut state, PART)? == Flushed::All {
            return Ok(Sent::Out);
        }
        self.publish(&state);
        Ok(Sent::Queued)
    }

    /// A copy of a frame, and the charge for it. The frame is one that waits.
    fn copy(&self, frame: &Frame<'_>, sent: usize) -> Result<WaitingFrame, LinkError> {
        let len = frame.head.len() + frame.payload_len;
        let cost = len + OVERHEAD;
        let charge = if sent > 0 || len <= SMALL {
            self.account.charge_anyway(cost)
        } else {
            self.account.charge(cost).ok_or_else(|| self.over_budget(len))?
        };
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(len).is_err() {
            return Err(LinkError::Exhausted(format!("no memory for a message of {len} bytes that has to wait")));
        }
        bytes.extend_from_slice(frame.head);
        frame.payload.iter().for_each(|piece| bytes.extend_from_slice(piece));
        Ok(WaitingFrame { bytes, head: frame.head.len(), sent, charge })
    }

    fn over_budget(&self, len: usize) -> LinkError {
        LinkError::Exhausted(self.account.refusal(len))
    }

    /// Lets others see how much waits. Called only before the lock is given away: what goes out in the same breath was
    /// never seen to wait, because nobody would tell those who saw it that there is room again.
    fn publish(&self, state: &OutboxState<S>) {
        // Relaxed: a hint; the thread that flushes takes the lock.
        self.queued.store(state.waiting, Ordering::Relaxed);
    }

    /// Sends waiting frames as far as there is room, or a part of them, so that a thread that flushes many connections
    /// can turn to the others first. Returns what is left for the caller. If a sender is in the middle of a frame, what
    /// waits must wait on: that sender's [`Sent::LookAgain`] says when to come again.
    pub(crate) fn flush(&self) -> Result<Flushed, LinkError> {
        self.flush_and_tell().map(|(done, _)| done)
    }

    /// Like `flush`; also whether anything waited, so that the reader may have to be told.
    pub(crate) fn flush_and_tell(&self) -> Result<(Flushed, bool), LinkError> {
        let mut state = self.state.lock();
        state.kept_since = None;
        let waited = !state.frames.is_empty();
        if !state.sending {
            let done = self.drain(&mut state, PART)?;
            return Ok((done, waited));
        }
        state.missed |= waited;
        Ok((if waited { Flushed::Full } else { Flushed::All }, waited))
    }

    /// Sends waiting frames as far as there is room, and at most `most` bytes if frames may be cut.
    fn drain(&self, state: &mut OutboxState<S>, most: usize) -> Result<Flushed, LinkError> {
        let done = state.drain(most);
        self.publish(state);
        done
    }
}

impl<S: Sink> OutboxState<S> {
    fn queue(&mut self, kept: WaitingFrame) {
        self.waiting += kept.bytes.len() + OVERHEAD;
        if kept.sent > 0 {
            self.frames.push_front(kept);
        } else {
            self.frames.push_back(kept);
        }
    }

    fn drain(&mut self, most: usize) -> Result<Flushed, LinkError> {
        let (mut asked, mut left) = (false, if S::JOINS { most } else { usize::MAX });
        while let Some(kept) = self.frames.front_mut() {
            let payload = [&kept.bytes[kept.head..]];
            let frame = Frame::new(&kept.bytes[..kept.head], &payload);
            let before = kept.sent;
            let put = self.sink.put(&frame, &mut kept.sent, left);
            if kept.sent > before {
                kept.charge.note_moved(kept.sent - before);
            }
            left = left.saturating_sub(kept.sent.saturating_sub(before));
            match put {
                Ok(Flushed::All) => {
                    self.waiting -= kept.bytes.len() + OVERHEAD;
                    self.frames.pop_front().into_iter().for_each(WaitingFrame::free);
                    asked = false;
                }
                Ok(Flushed::Part) => return Ok(Flushed::Part),
                Ok(Flushed::Full) if !asked && self.sink.ask_for_room() => asked = true,
                Ok(Flushed::Full) => return Ok(Flushed::Full),
                // The sender has returned already, so the frame must not be lost in silence.
                Err(error) => {
                    self.closed = true;
                    return Err(if error.spares_connection() { LinkError::Broken(error.to_string()) } else { error });
                }
            }
        }
        Ok(Flushed::All)
    }
}

/// How a frame was sent whose sender may have `drained` what others had queued.
fn told_anew_if(drained: bool, sent: Result<Sent, LinkError>) -> Result<Sent, LinkError> {
    if drained { sent.map(|_| Sent::LookAgain) } else { sent }
}

#[cfg(test)]
mod tests;

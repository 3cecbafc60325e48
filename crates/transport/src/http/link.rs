//! What both ends of a connection of HTTP have in common: bytes between a session and a socket, and who looks at them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_http::Connection;
use nearcall_platform::lock::Mutex;
use nearcall_platform::{clock, fork, sys};
use nearcall_ring::SpinBudget;
use nearcall_wire::Kind;
use rustix::event::PollFlags;

use super::bell::Bell;
use super::frames::Frames;
use super::receiving::receive;
use super::role::Role;
use crate::budget::{Account, Charge};
use crate::errors::LinkError;
use crate::incoming::Incoming;
use crate::link::{Flushed, Link, PART, ROOM_LOOK, Room, Sent, TOGETHER_BYTES, TOGETHER_NS};
use crate::options::Options;
use crate::outgoing::{CallKey, Outgoing};
use crate::peer::Peer;
use crate::silence::{Silence, has_come};
use crate::sync::{AtomicBool, AtomicUsize, Ordering};
use crate::wire::Wire;

/// Bytes that are read at most of a peer that does not read: more than its windows allow.
const MOST_READ: usize = 8 << 20;
/// A client that leaves so many bytes unread in front of what it asks for next is not read from: calls that are refused are
/// answered here, and an answer may be many times as long as what is asked.
const MOST_UNREAD: usize = 1 << 20;
/// Bytes of what a session keeps that are not counted: what each of them needs.
const UNCOUNTED: usize = 128 << 10;
/// What may wait behind the peer's windows, bytes, before the peer counts as one that does not read, when more is kept than
/// may be. As long as less is kept nothing of that counts: it waits for streams that the peer does not read now, and must
/// not hold up those that it does.
const IMPATIENCE: usize = 64 << 10;
/// What is taken in, in a row, that is no frame for the core, before others have their turn. A request whose message has not
/// come is such, and a few bytes of it may stand for headers of 64 KiB.
const MOST_SILENT: usize = 64;
/// Whoever may wait with a frame does so while more bytes than this wait in front of it.
const MUCH: usize = 4 << 20;

/// A connection of HTTP that carries calls.
///
/// All that is known of it is behind one lock, which is held for a frame at a time and never while somebody waits. What is to
/// be written waits in the session, which is the connection's one outgoing queue.
#[derive(Debug)]
pub(crate) struct HttpLink<W, R: Role> {
    wire: W,
    peer: Peer,
    state: Mutex<State<R>>,
    /// How long the one who receives spins.
    budget: Mutex<SpinBudget>,
    account: Arc<Account>,
    /// Bytes that wait for room in the socket, and those behind the peer's windows that are too many.
    queued: AtomicUsize,
    /// Calls that the peer has given up and somebody still works for.
    given_up: AtomicUsize,
    silence: Silence,
    closed: AtomicBool,
    generation: u32,
    /// The peer may end the connection between two calls: that is looked for before each.
    may_end: bool,
    /// A client's: wakes whoever receives.
    bell: Option<Bell>,
}

#[derive(Debug)]
struct State<R: Role> {
    session: R::Session,
    role: R,
    frames: Frames,
    /// Whoever receives has found something, and will look again.
    looks_again: bool,
    /// The peer reads no more.
    is_deaf: bool,
    /// Since when something is kept back to go out with more.
    kept_since: Option<u64>,
    /// What the session keeps, beyond what every one may.
    kept: Charge,
    /// Nothing more is read, as the session takes no more for now.
    is_paused: bool,
    /// This side has said that nothing more comes from it.
    has_ended: bool,
    /// The peer gets no more credit, because more is kept of what it has sent than may be.
    holds_credit: bool,
    /// Bytes that have gone to the socket.
    written: u64,
    /// Calls that begin at so many bytes, which have not gone there yet.
    unwritten: VecDeque<(u64, u32)>,
}

impl<R: Role> State<R> {
    /// So many bytes more have gone to the socket.
    fn note_written(&mut self, len: usize) {
        self.written += len as u64;
        while self.unwritten.front().is_some_and(|&(at, _)| at < self.written) {
            self.unwritten.pop_front();
        }
    }
}

impl<W: Wire, R: Role> HttpLink<W, R> {
    pub(crate) fn new(
        wire: W,
        peer: Peer,
        session: R::Session,
        role: R,
        account: Arc<Account>,
        options: &Options,
    ) -> Self {
        let may_end = session.may_end();
        let state = State {
            session,
            role,
            frames: Frames::new(),
            looks_again: false,
            is_deaf: false,
            kept_since: None,
            kept: account.charge_anyway(0),
            is_paused: false,
            has_ended: false,
            holds_credit: false,
            written: 0,
            unwritten: VecDeque::new(),
        };
        Self {
            wire,
            peer,
            state: Mutex::new(state),
            budget: Mutex::new(SpinBudget::new(options.spin)),
            account,
            queued: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
            silence: Silence::begin(),
            closed: AtomicBool::new(false),
            generation: fork::mark(),
            may_end,
            bell: None,
        }
    }

    /// The same for a client, whose threads receive by themselves.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn with_bell(mut self) -> io::Result<Self> {
        self.bell = Some(Bell::beside(self.wire.fd())?);
        Ok(self)
    }

    fn is_closed(&self) -> bool {
        // Acquire: whoever sees the flag sees the shutdown that came before it.
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the peer leaves too much unread to be given more answers. A client does not ask: it reads what it has sent for.
    fn is_unread(&self, state: &mut State<R>) -> Result<bool, LinkError> {
        if self.bell.is_some() || state.session.queued() < MOST_UNREAD {
            return Ok(false);
        }
        self.write(state)?;
        Ok(state.session.queued() >= MOST_UNREAD)
    }

    /// The next frame in what has been read.
    fn next(&self, state: &mut State<R>) -> Result<Option<Incoming>, LinkError> {
        for _ in 0..MOST_SILENT {
            if let Some(frame) = state.frames.pop_front() {
                return Ok(Some(frame));
            }
            if self.is_unread(state)? {
                self.note(state);
                return Err(LinkError::OverBudget);
            }
            let State { session, role, frames, .. } = &mut *state;
            match role.take_in(session, frames) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => {
                    // The session has a goodbye to say, which tells the peer why. There may be no room for it.
                    let _ = self.write(state);
                    return Err(error);
                }
            }
        }
        Err(LinkError::Unfinished)
    }

    /// Reads once, without waiting. How many bytes; none if none are there.
    fn read(&self, state: &mut State<R>) -> Result<usize, LinkError> {
        self.pause(state)?;
        if state.is_paused {
            return Ok(0);
        }
        match self.wire.read(state.session.space(), false)? {
            Some(0) => Err(LinkError::Closed),
            Some(len) => {
                state.session.arrived(len);
                Ok(len)
            }
            None => Ok(0),
        }
    }

    /// Notes whether the session takes more for now. A client's poller does not tell of what nobody reads: whoever waits in it
    /// would wake again and again.
    fn pause(&self, state: &mut State<R>) -> Result<(), LinkError> {
        let pauses = !state.session.takes_more();
        if pauses == state.is_paused {
            return Ok(());
        }
        state.is_paused = pauses;
        if let Some(bell) = &self.bell {
            bell.watch(self.wire.fd(), !pauses)?;
        }
        Ok(())
    }

    /// Writes what there is room for. Whether nothing is left.
    fn write(&self, state: &mut State<R>) -> Result<bool, LinkError> {
        state.kept_since = None;
        while state.session.queued() > 0 {
            if state.is_deaf {
                state.session.sent(state.session.queued());
                continue;
            }
            match self.wire.write(&[IoSlice::new(state.session.unsent())])? {
                Some(len) => {
                    state.session.sent(len);
                    state.note_written(len);
                }
                None => return Ok(false),
            }
        }
        if state.session.is_cut() {
            // The peer notices at once, and so does whoever receives here.
            let _ = rustix::net::shutdown(self.wire.fd(), rustix::net::Shutdown::Both);
            return Ok(true);
        }
        // A peer that reads no more gets no rest of a record, either.
        let all = state.is_deaf || self.wire.flush()?;
        if all && state.session.ends() && !std::mem::replace(&mut state.has_ended, true) {
            // The peer hangs up when it has read that. To close now could take from it what it has not read.
            self.wire.say_goodbye();
            let _ = rustix::net::shutdown(self.wire.fd(), rustix::net::Shutdown::Write);
        }
        Ok(all)
    }

    /// The same, and what waits afterwards is noted.
    fn flush_from(&self, state: &mut State<R>) -> Result<Sent, LinkError> {
        let mut all = self.write(state)?;
        let mut waits = self.note(state);
        if all && state.session.queued() > 0 {
            // There is room again, and the peer gets the credit that was kept from it. Nobody else would send it.
            all = self.write(state)?;
            waits = self.note(state);
        }
        Ok(if waits == 0 && all { Sent::Out } else { Sent::Queued })
    }

    /// Takes in what is here, for later: a peer that is not read from because it does not read must be able to say that it
    /// does again. Its windows and the streams that it may open bound what that can be.
    fn take_in(&self, state: &mut State<R>) -> Result<(), LinkError> {
        let mut read = 0;
        loop {
            self.take_in_arrived(state)?;
            if state.session.queued() >= MOST_UNREAD {
                return Ok(());
            }
            match self.read(state)? {
                len if len == 0 || read >= MOST_READ => return Ok(()),
                len => read += len,
            }
        }
    }

    /// The same with what has been read already.
    fn take_in_arrived(&self, state: &mut State<R>) -> Result<(), LinkError> {
        let State { session, role, frames, .. } = state;
        let most = if self.bell.is_some() { usize::MAX } else { MOST_UNREAD };
        while session.queued() < most && role.take_in(session, frames)? {}
        Ok(())
    }

    /// Notes what is kept now. How much of it is more than should wait for the peer.
    fn note(&self, state: &mut State<R>) -> usize {
        let State { session, role, kept, holds_credit, is_deaf, .. } = state;
        kept.set_unfinished(session.unfinished());
        kept.set((session.held() + session.waiting() + session.queued()).saturating_sub(UNCOUNTED));
        let over = !self.account.allows(0);
        if over != *holds_credit {
            *holds_credit = over;
            session.hold_credit(over);
        }
        // A client waits by itself, and a peer that has hung up is not waited for.
        let counts = over && self.bell.is_none() && !*is_deaf;
        let patience = if counts { IMPATIENCE } else { usize::MAX };
        let queued = session.queued() + session.waiting().saturating_sub(patience);
        // Relaxed, both: hints; whoever acts on them takes the lock.
        self.queued.store(queued, Ordering::Relaxed);
        self.given_up.store(role.given_up(), Ordering::Relaxed);
        queued
    }

    /// The next frame, of what is here or can be read without waiting. Reads no more than a part.
    fn look(&self, state: &mut State<R>) -> Result<Option<Incoming>, LinkError> {
        let mut read = 0;
        if let Some(bell) = &self.bell {
            bell.clear();
        }
        // A client looks until it has its reply, and then no more.
        state.looks_again = self.bell.is_none();
        loop {
            if let Some(frame) = self.next(state)? {
                return Ok(Some(frame));
            }
            if read >= PART {
                return Err(LinkError::Unfinished);
            }
            match self.read(state)? {
                0 => break,
                len => read += len,
            }
        }
        state.looks_again = false;
        // Answers to what has come, and what was kept back.
        self.flush_from(state)?;
        while state.holds_credit && self.account.is_full_of_unfinished() {
            // None of them could end, as none gets more credit.
            let State { session, role, frames, .. } = &mut *state;
            if !role.make_room(session, frames) {
                break;
            }
            self.flush_from(state)?;
        }
        match state.frames.pop_front() {
            Some(frame) => Ok(Some(frame)),
            None if state.holds_credit => Err(LinkError::OverBudget),
            None => Ok(None),
        }
    }

    /// Puts a frame into the session, and sends it, unless it is to go out with others.
    fn put(
        &self,
        state: &mut State<R>,
        call: CallKey,
        frame: &Outgoing<'_>,
        together: bool,
    ) -> Result<Sent, LinkError> {
        let State { session, role, frames, is_deaf, .. } = &mut *state;
        let (before, out_at_once) = (session.queued(), Cell::new(0));
        // A failure shows again in the next write.
        let mut out = |bytes: &[u8]| {
            let taken = if *is_deaf { Ok(Some(bytes.len())) } else { self.wire.write(&[IoSlice::new(bytes)]) };
            let taken = taken.ok().flatten().unwrap_or(0);
            out_at_once.set(out_at_once.get() + taken);
            taken
        };
        role.put(session, frames, call, frame, &mut out)?;
        if frame.kind == Kind::Call && self.bell.is_some() {
            let begins = state.written + before as u64;
            state.unwritten.push_back((begins, call.number));
        }
        state.note_written(out_at_once.get());
        let more_comes = together || (state.looks_again && state.session.has_arrived());
        if more_comes && state.session.queued() < TOGETHER_BYTES {
            let now = clock::monotonic_ns();
            if now.saturating_sub(*state.kept_since.get_or_insert(now)) < TOGETHER_NS {
                self.note(state);
                if !together {
                    return Ok(Sent::Out);
                }
                let is_looked_at = state.looks_again || !self.has_made_frames(state)?;
                return Ok(if is_looked_at { Sent::Kept } else { Sent::Queued });
            }
        }
        let sent = self.flush_from(state)?;
        Ok(if !state.looks_again && self.has_made_frames(state)? { Sent::Queued } else { sent })
    }

    /// What was sent may have made frames for the core, credit above all, and nobody is about to look. A client's thread that
    /// sleeps is woken. At a server, whether somebody has to flush: he finds the socket ready at once, and looks.
    fn has_made_frames(&self, state: &mut State<R>) -> Result<bool, LinkError> {
        self.take_in_arrived(state)?;
        let Some(bell) = &self.bell else {
            // What is read again now may have been here for long, and nobody tells of it.
            return Ok(!state.frames.is_empty() || (state.is_paused && state.session.takes_more()));
        };
        let was_paused = state.is_paused;
        self.pause(state)?;
        if !state.frames.is_empty() || (was_paused && !state.is_paused) {
            bell.ring();
        }
        // A call that has waited may have begun.
        Ok(state.session.queued() > 0 && self.flush_from(state)? == Sent::Queued)
    }
}

impl<W: Wire, R: Role> HttpLink<W, R> {
    /// Sleeps until something has arrived, if this thread receives, or there is room in the socket for what waits. Whether
    /// something happened.
    fn sleep(&self, receiving: bool, until: Instant) -> io::Result<bool> {
        match (receiving, self.queued() > 0) {
            (true, true) => sys::wait_for_any([(self.fd(), PollFlags::IN), (self.wire.fd(), PollFlags::OUT)], until),
            (true, false) => sys::wait_for(self.fd(), PollFlags::IN, Some(until)),
            (false, true) => sys::wait_for(self.wire.fd(), PollFlags::OUT, Some(until)),
            // Room comes with what another thread receives.
            (false, false) => {
                sys::wait_for(self.wire.fd(), PollFlags::empty(), Some(until.min(Instant::now() + ROOM_LOOK)))
            }
        }
    }
}

impl<W: Wire, R: Role> Link for HttpLink<W, R> {
    fn send(&self, call: CallKey, frame: &Outgoing<'_>, room: Room<'_>) -> Result<Sent, LinkError> {
        let (may_queue, together) = (matches!(room, Room::Later | Room::Together), matches!(room, Room::Together));
        let mut blocked = match room {
            Room::Now if self.queued() > 0 && self.flush()? != Flushed::All => return Err(LinkError::Full),
            Room::Later | Room::Together | Room::Now => None,
            Room::Wait(blocked) => Some(blocked),
        };
        loop {
            let mut state = self.state.lock();
            if self.is_closed() {
                return Err(LinkError::Closed);
            }
            if blocked.is_none() || state.session.queued() + state.session.waiting() < MUCH {
                match self.put(&mut state, call, frame, together) {
                    Err(LinkError::Full) if blocked.is_some() => {}
                    Err(LinkError::Full) if may_queue => {
                        return state.role.wait(call, frame).map(|()| Sent::Out);
                    }
                    sent => return sent,
                }
            }
            drop(state);
            if let Some(blocked) = &mut blocked {
                blocked()?;
            }
        }
    }

    fn flush(&self) -> Result<Flushed, LinkError> {
        let mut state = self.state.lock();
        let mut sent = self.flush_from(&mut state)?;
        if self.bell.is_some() {
            if self.has_made_frames(&mut state)? {
                sent = Sent::Queued;
            }
        } else if sent == Sent::Queued {
            self.take_in(&mut state)?;
            sent = self.flush_from(&mut state)?;
        }
        Ok(if sent == Sent::Out { Flushed::All } else { Flushed::Full })
    }

    fn release(&self) -> Result<Sent, LinkError> {
        let mut state = self.state.lock();
        state.looks_again = false;
        self.flush_from(&mut state)
    }

    fn finished(&self, call: u32) {
        // Relaxed: a call that is given up later is looked at by whoever takes that in.
        if self.given_up.load(Ordering::Relaxed) > 0 {
            let mut state = self.state.lock();
            let State { session, role, .. } = &mut *state;
            role.finished(session, call);
            self.note(&mut state);
        }
    }

    fn queued(&self) -> usize {
        // Relaxed: a hint; whoever flushes takes the lock.
        self.queued.load(Ordering::Relaxed)
    }

    fn stop_sending(&self) {
        let mut state = self.state.lock();
        state.is_deaf = true;
        // Nothing is written any more, so nothing can fail.
        let _ = self.flush_from(&mut state);
    }

    fn try_receive_part(&self) -> Result<Option<Incoming>, LinkError> {
        let found = self.look(&mut self.state.lock());
        if let (Err(LinkError::Unfinished), Some(bell)) = (&found, &self.bell) {
            // What is left may have been read already, and the socket tells a poller nothing of that.
            bell.ring();
        }
        found
    }

    fn receive(&self, deadline: Option<Instant>) -> Result<Option<Incoming>, LinkError> {
        receive(&self.budget, deadline, || self.try_receive_part(), |until| self.sleep(true, until))
    }

    fn spin(&self) -> bool {
        let mut budget = self.budget.lock();
        let begun = clock::monotonic_ns();
        let limit = budget.next();
        loop {
            let mut state = self.state.lock();
            // A broken connection is something to look at, too.
            let ready = !state.frames.is_empty() || self.read(&mut state).map_or(true, |len| len > 0);
            drop(state);
            if ready {
                budget.uncrowded();
                budget.learn(clock::monotonic_ns() - begun);
                return true;
            }
            if clock::monotonic_ns() - begun >= limit || !budget.share_cpu() {
                return false;
            }
        }
    }

    fn is_stale(&self) -> bool {
        if self.may_end {
            let state = self.state.lock();
            // A goodbye is among them.
            return !state.frames.is_empty() || state.session.has_arrived() || has_come(&self.wire);
        }
        self.silence.hides_something(&self.wire)
    }

    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError> {
        if receiving && self.wire.holds() && !self.state.lock().is_paused {
            return Ok(());
        }
        match self.sleep(receiving, Instant::now() + timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        if self.is_closed() { Err(LinkError::Closed) } else { Ok(()) }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_ref().map_or_else(|| self.wire.fd(), Bell::fd)
    }

    fn arm(&self) -> bool {
        let state = self.state.lock();
        state.frames.is_empty() && (state.is_paused || !self.wire.holds())
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn takes_last_calls(&self) -> bool {
        true
    }

    fn tells_unbegun(&self) -> bool {
        true
    }

    fn never_sent(&self) -> Vec<u32> {
        let state = self.state.lock();
        state.role.unbegun().chain(state.unwritten.iter().map(|&(_, number)| number)).collect()
    }

    fn why_no_room(&self) -> Option<String> {
        let State { session, role, .. } = &mut *self.state.lock();
        role.why_no_room(session)
    }

    fn has_delivered(&self) -> bool {
        let mut state = self.state.lock();
        let State { session, role, .. } = &mut *state;
        if !role.has_parted(session, true) || (session.queued() > 0 && self.flush_from(&mut state).is_err()) {
            return false;
        }
        state.session.queued() + state.session.waiting() == 0 && sys::is_delivered(self.wire.fd())
    }

    fn close(&self) {
        if self.generation != fork::generation() {
            // It is our parent's, who goes on using it.
            return;
        }
        // Release: pairs with the acquire in `is_closed`.
        if !self.closed.swap(true, Ordering::Release) {
            let mut state = self.state.lock();
            let State { session, role, .. } = &mut *state;
            role.has_parted(session, false);
            // What there is room for, a goodbye for instance.
            let _ = self.write(&mut state);
        }
        self.wire.say_goodbye();
        let _ = rustix::net::shutdown(self.wire.fd(), rustix::net::Shutdown::Both);
    }
}

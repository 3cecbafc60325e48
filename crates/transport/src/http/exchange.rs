//! What goes between a session and its socket: what has come, and what is written, at once or with more.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use nearcall_http::Connection;
use nearcall_platform::clock;
use nearcall_wire::Kind;

use super::bell::Bell;
use super::frames::Frames;
use super::role::Role;
use crate::errors::LinkError;
use crate::frame::incoming::Incoming;
use crate::frame::outgoing::{CallKey, Outgoing};
use crate::limits::budget::{Account, Charge};
use crate::link::wire::Wire;
use crate::link::{PART, Sent, TOGETHER_BYTES, TOGETHER_NS};
use crate::signal::Signal;
use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that are read at most of a peer that does not read: more than its windows allow.
const MOST_READ: usize = 8 << 20;
/// A client that leaves so many bytes unread in front of what it asks for next is not read from: calls that are refused are
/// answered here, and an answer may be many times as long as what is asked.
const MOST_UNREAD: usize = 1 << 20;
/// Bytes of what a session keeps that are not counted: what each of them needs.
const UNCOUNTED: usize = 128 << 10;
/// What may wait behind the peer's windows of answers that are complete, bytes, before the peer counts as one that does not
/// read, when more is kept than may be. What waits of others holds up nothing but their own streams.
const IMPATIENCE: usize = 64 << 10;
/// What is taken in, in a row, that is no frame for the core, before others have their turn. A request whose message has not
/// come is such, and a few bytes of it may stand for headers of 64 KiB: each KiB of them counts as one more.
const MOST_SILENT: u64 = 64;

/// A socket, and what may be known of its session without the lock.
#[derive(Debug)]
pub(super) struct Exchange<W> {
    pub(super) wire: W,
    account: Arc<Account>,
    /// Bytes that wait for room in the socket, and those behind the peer's windows that are too many.
    queued: AtomicUsize,
    /// More is kept than may be, so items may be held up.
    is_over: AtomicBool,
    /// Calls that the peer has given up and somebody still works for.
    given_up: AtomicUsize,
    /// A client's: wakes whoever receives.
    pub(super) bell: Option<Bell>,
}

/// What is behind the lock: the session, which is the connection's one outgoing queue, and how far it is.
#[derive(Debug)]
pub(super) struct ExchangeState<R: Role> {
    pub(super) session: R::Session,
    pub(super) role: R,
    pub(super) frames: Frames,
    /// Whoever receives has found something, and will look again.
    pub(super) looks_again: bool,
    /// The last read has brought less than there was room for.
    read_out: bool,
    /// The peer reads no more.
    pub(super) is_deaf: bool,
    /// Since when something is kept back to go out with more.
    kept_since: Option<u64>,
    /// What the session keeps, beyond what every one may.
    kept: Charge,
    /// Nothing more is read, as the session takes no more for now.
    pub(super) is_paused: bool,
    /// This side has said that nothing more comes from it.
    has_ended: bool,
    /// The peer gets no more credit, because more is kept of what it has sent than may be.
    holds_credit: bool,
    /// Bytes that have gone to the socket.
    written: u64,
    /// Calls that begin at so many bytes, which have not gone there yet.
    unwritten: VecDeque<(u64, u32)>,
}

impl<R: Role> ExchangeState<R> {
    pub(super) fn new(session: R::Session, role: R, account: &Arc<Account>) -> Self {
        Self {
            session,
            role,
            frames: Frames::new(),
            looks_again: false,
            read_out: false,
            is_deaf: false,
            kept_since: None,
            kept: account.charge_anyway(0),
            is_paused: false,
            has_ended: false,
            holds_credit: false,
            written: 0,
            unwritten: VecDeque::new(),
        }
    }

    /// Whether what was read last has probably been all there was.
    pub(super) fn seems_read_out(&self) -> bool {
        self.read_out && self.frames.is_empty() && !self.session.has_arrived()
    }

    /// Numbers of calls of which nothing has gone to the socket.
    pub(super) fn never_sent(&self) -> Vec<u32> {
        self.role.unbegun().chain(self.unwritten.iter().map(|&(_, number)| number)).collect()
    }

    /// So many bytes more have gone to the socket.
    fn note_written(&mut self, len: usize) {
        self.written += len as u64;
        while self.unwritten.front().is_some_and(|&(at, _)| at < self.written) {
            self.unwritten.pop_front();
        }
    }
}

impl<W: Wire> Exchange<W> {
    pub(super) fn new(wire: W, account: Arc<Account>) -> Self {
        Self {
            wire,
            account,
            queued: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            given_up: AtomicUsize::new(0),
            bell: None,
        }
    }

    /// What is kept on the connection, both of what has come and of what is to go.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Bytes that somebody has to flush. A hint: whoever flushes takes the lock.
    pub(super) fn queued(&self) -> usize {
        // Relaxed: see above.
        self.queued.load(Ordering::Relaxed)
    }

    /// Whether more is kept for the peer, and of it, than may be. A hint, too.
    pub(super) fn is_over(&self) -> bool {
        // Relaxed: as above.
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether no more is kept for the peer, and of it, than may be. Without the lock, and no hint.
    pub(super) fn has_room(&self) -> bool {
        self.account.spare().is_none()
    }

    /// Calls that the peer has given up and somebody still works for. A hint, too.
    pub(super) fn given_up(&self) -> usize {
        // Relaxed: a call that is given up later is looked at by whoever takes that in.
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whether the peer leaves too much unread to be given more answers. A client does not ask: it reads what it has sent for.
    fn is_unread<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<bool, LinkError> {
        if self.bell.is_some() || state.session.queued() < MOST_UNREAD {
            return Ok(false);
        }
        self.write(state)?;
        Ok(state.session.queued() >= MOST_UNREAD)
    }

    /// The next frame in what has been read.
    fn next<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<Option<Incoming>, LinkError> {
        let listed = state.session.listed();
        let mut silent = 0;
        while silent + ((state.session.listed() - listed) >> 10) < MOST_SILENT {
            silent += 1;
            if let Some(frame) = state.frames.pop_front() {
                return Ok(Some(frame));
            }
            if self.is_unread(state)? {
                self.note(state);
                return Err(LinkError::OverBudget);
            }
            let ExchangeState { session, role, frames, .. } = &mut *state;
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
        state.frames.pop_front().map(Some).ok_or(LinkError::Unfinished)
    }

    /// Reads once, without waiting. How many bytes; none if none are there.
    pub(super) fn read<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<usize, LinkError> {
        self.pause(state)?;
        if state.is_paused {
            return Ok(0);
        }
        let space = state.session.space();
        let room = space.len();
        match self.wire.read(space, false)? {
            Some(0) => Err(LinkError::Closed),
            Some(len) => {
                self.account.note_moved(len);
                state.read_out = len < room && !self.wire.holds();
                state.session.arrived(len);
                Ok(len)
            }
            None => Ok(0),
        }
    }

    /// Notes whether the session takes more for now. A client's poller does not tell of what nobody reads: whoever waits in it
    /// would wake again and again.
    fn pause<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<(), LinkError> {
        let pauses = !state.session.takes_more();
        if pauses == state.is_paused {
            return Ok(());
        }
        state.is_paused = pauses;
        if let Some(bell) = &self.bell {
            bell.watch(Signal::Descriptor(self.wire.fd()), !pauses)?;
        }
        Ok(())
    }

    /// Writes what there is room for. Whether nothing is left.
    pub(super) fn write<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<bool, LinkError> {
        state.kept_since = None;
        while state.session.queued() > 0 {
            if state.is_deaf {
                state.session.sent(state.session.queued());
                continue;
            }
            match self.wire.write(&[IoSlice::new(state.session.unsent())])? {
                Some(len) => {
                    self.account.note_moved(len);
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
    pub(super) fn flush_from<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<Sent, LinkError> {
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
    pub(super) fn take_in<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<(), LinkError> {
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
    fn take_in_arrived<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<(), LinkError> {
        let ExchangeState { session, role, frames, .. } = state;
        let most = if self.bell.is_some() { usize::MAX } else { MOST_UNREAD };
        while session.queued() < most && role.take_in(session, frames)? {}
        Ok(())
    }

    /// Notes what is kept now. How much of it is more than should wait for the peer.
    pub(super) fn note<R: Role>(&self, state: &mut ExchangeState<R>) -> usize {
        let ExchangeState { session, role, kept, holds_credit, is_deaf, .. } = state;
        kept.set_unfinished(session.unfinished());
        let leaving = session.waiting() + session.queued();
        kept.set((session.held() + leaving).saturating_sub(UNCOUNTED));
        let spare = self.account.spare();
        // To take in less makes no room for what leaves.
        let holds = spare.is_some_and(|spare| self.account.used().saturating_sub(leaving) > spare);
        if holds != *holds_credit {
            *holds_credit = holds;
            session.hold_credit(holds);
        }
        // A client waits by itself, and a peer that has hung up is not waited for.
        let counts = spare.is_some() && self.bell.is_none() && !*is_deaf;
        let patience = if counts { IMPATIENCE } else { usize::MAX };
        let queued = session.queued() + session.finished().saturating_sub(patience);
        // Relaxed, all: hints; whoever acts on them takes the lock.
        self.is_over.store(counts, Ordering::Relaxed);
        self.queued.store(queued, Ordering::Relaxed);
        self.given_up.store(role.given_up(), Ordering::Relaxed);
        queued
    }

    /// The next frame, of what is here or can be read without waiting. Reads no more than a part.
    pub(super) fn look<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<Option<Incoming>, LinkError> {
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
        // Answers to what has come, and what was kept back. That streams have room now is news, too.
        self.flush_from(state)?;
        self.take_in_arrived(state)?;
        while state.holds_credit && self.account.is_full_of_unfinished() {
            // None of them could end, as none gets more credit.
            let ExchangeState { session, role, frames, .. } = &mut *state;
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
    pub(super) fn put<R: Role>(
        &self,
        state: &mut ExchangeState<R>,
        call: CallKey,
        frame: &Outgoing<'_>,
        together: bool,
    ) -> Result<Sent, LinkError> {
        let ExchangeState { session, role, frames, is_deaf, .. } = &mut *state;
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
                return Ok(if is_looked_at { Sent::KeptBack } else { Sent::LookAgain });
            }
        }
        let sent = self.flush_from(state)?;
        Ok(if !state.looks_again && self.has_made_frames(state)? { Sent::LookAgain } else { sent })
    }

    /// What was sent may have made frames for the core, credit above all, and nobody is about to look. A client's thread that
    /// sleeps is woken. At a server, whether somebody has to flush: he finds the socket ready at once, and looks. He must be told
    /// even if he waits for room already: what he waits for may come only after that.
    pub(super) fn has_made_frames<R: Role>(&self, state: &mut ExchangeState<R>) -> Result<bool, LinkError> {
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

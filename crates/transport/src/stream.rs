//! A connection over a byte stream: a Unix or a TCP socket, plain or with encryption on top.
//!
//! A frame is preceded by its length, `u32`, little-endian.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::lock::Mutex;
use nearcall_platform::{clock, sys};
use nearcall_ring::SpinBudget;
use rustix::event::PollFlags;
use smallvec::SmallVec;

use crate::errors::LinkError;
use crate::frame::incoming::{self, INLINE, Incoming};
use crate::frame::outgoing::{CallKey, Outgoing};
use crate::limits::arrived::{self, Arrived};
use crate::limits::budget::{Account, Charge};
use crate::limits::spares;
use crate::link::end::LinkEnd;
use crate::link::native::{self, Delimited, PREFIX};
use crate::link::outbox::{Frame, Outbox, Sink};
use crate::link::silence::Silence;
use crate::link::wire::Wire;
use crate::link::{Flushed, HEAD_ROOM, Link, PART, Properties, Room, Sent, Wait};
use crate::options::Options;
use crate::peer::Peer;
use crate::signal::Signal;

#[derive(Debug)]
pub(crate) struct StreamLink<W> {
    wire: Arc<W>,
    properties: Properties,
    outbox: Outbox<Writer<W>>,
    silence: Silence,
    receiver: Mutex<StreamReceiver>,
    peer_limit: u64,
    end: LinkEnd,
}

/// Writes frames into the wire.
#[derive(Debug)]
struct Writer<W>(Arc<W>);

#[derive(Debug)]
struct StreamReceiver {
    arrived: Arrived,
    /// What half a frame takes while nothing more of it arrives.
    half: Charge,
    /// A frame too long for a buffer: it is read straight into memory of its own.
    long: Option<LongFrame>,
    /// Nobody receives any more. What comes next may be the rest of a frame that is gone.
    stopped: bool,
    /// Longest message that this side accepts.
    limit: u64,
    account: Arc<Account>,
    budget: SpinBudget,
    /// `corks`: whether to keep replies back while more requests have been read. `corked`: whether the outbox does so
    /// now.
    corks: bool,
    corked: bool,
    /// The last read has brought less than there was room for.
    read_out: bool,
}

/// A frame that is read straight into memory of its own. The memory is reserved at once but touched only as bytes
/// arrive, so a peer that announces much and sends little costs nothing.
#[derive(Debug)]
struct LongFrame {
    bytes: Vec<u8>,
    len: usize,
    charge: Charge,
}

impl LongFrame {
    fn left(&self) -> usize {
        self.len - self.bytes.len()
    }
}

impl<W: Wire> StreamLink<W> {
    /// `corks`: whether to keep replies back while more requests have been read, as a server does.
    pub(crate) fn new(wire: W, peer: Peer, peer_limit: u64, corks: bool, options: &Options) -> Self {
        let (wire, account) = (Arc::new(wire), options.account());
        let mut half = account.charge_anyway(0);
        // It comes and goes with each byte: neither may count as progress.
        half.begin_work();
        Self {
            outbox: Outbox::new(Writer(Arc::clone(&wire)), Arc::clone(&account)),
            wire,
            properties: Properties::new(peer),
            silence: Silence::begin(),
            receiver: Mutex::new(StreamReceiver {
                arrived: Arrived::default(),
                half,
                long: None,
                stopped: false,
                limit: options.max_message,
                account,
                budget: SpinBudget::new(options.spin),
                corks,
                corked: false,
                read_out: false,
            }),
            peer_limit,
            end: LinkEnd::open(),
        }
    }

    /// After a frame was taken: tells the outbox whether another one has been read.
    fn cork(&self, receiver: &mut StreamReceiver) {
        let more = receiver.has_frame();
        if std::mem::replace(&mut receiver.corked, more) != more {
            if more { self.outbox.cork() } else { self.outbox.uncork() }
        }
    }
}

impl<W: Wire> Sink for Writer<W> {
    const JOINS: bool = true;

    fn now(&self) -> u64 {
        clock::monotonic_ns()
    }

    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize, most: usize) -> Result<Flushed, LinkError> {
        let mut left = most;
        let mut pieces: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
        let mut before = *sent;
        for piece in std::iter::once(&frame.head).chain(frame.payload) {
            let rest = &piece[before.min(piece.len())..];
            before = before.saturating_sub(piece.len());
            let part = &rest[..rest.len().min(left)];
            left -= part.len();
            if !part.is_empty() {
                pieces.push(IoSlice::new(part));
            }
        }
        let mut pieces = &mut pieces[..];
        while !pieces.is_empty() {
            // The kernel takes 1024 pieces at most.
            let Some(taken) = self.0.write(&pieces[..pieces.len().min(1024)])? else { return Ok(Flushed::Full) };
            *sent += taken;
            IoSlice::advance_slices(&mut pieces, taken);
        }
        Ok(match self.0.flush()? {
            false => Flushed::Full,
            true if *sent < frame.head.len() + frame.payload_len => Flushed::Part,
            true => Flushed::All,
        })
    }
}

impl StreamReceiver {
    /// Takes a whole frame out of what has been read, and puts it into an empty slot.
    fn take(&mut self, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        if let Some(long) = self.long.take_if(|long| long.left() == 0) {
            let charged = incoming::Long::charged(long.charge);
            *slot = Some(Incoming::decode(SmallVec::from_vec(long.bytes), Some(charged))?);
            return Ok(());
        }
        if self.long.is_some() {
            return Ok(());
        }
        let Some((prefix, rest)) = self.arrived.bytes().split_first_chunk::<PREFIX>() else {
            return Ok(());
        };
        let len = u32::from_le_bytes(*prefix) as usize;
        if len as u64 > self.limit.saturating_add(HEAD_ROOM) {
            let limit = self.limit;
            return Err(LinkError::Broken(format!("the peer announces a frame of {len} bytes, the limit is {limit}")));
        }
        if let Some(frame) = rest.get(..len).filter(|frame| frame.len() <= INLINE) {
            let decoded = Incoming::decode_in(slot, len, |bytes| bytes.copy_from_slice(frame));
            self.consume(PREFIX + len);
            return decoded;
        }
        if rest.len() >= len {
            let charge = Incoming::charge(&self.account, len)?;
            let bytes = SmallVec::from_slice(&rest[..len]);
            self.consume(PREFIX + len);
            *slot = Some(Incoming::decode(bytes, charge.map(incoming::Long::charged))?);
            return Ok(());
        }
        if PREFIX + len > arrived::LEN {
            let charge = self.account.charge(len).ok_or(LinkError::OverBudget)?;
            let Ok(mut bytes) = spares::reserve(len) else {
                return Err(LinkError::Exhausted(format!("no memory for a message of {len} bytes")));
            };
            bytes.extend_from_slice(rest);
            charge.note_moved(bytes.len());
            self.long = Some(LongFrame { bytes, len, charge });
            self.arrived.consume(self.arrived.bytes().len());
        }
        Ok(())
    }

    /// A frame was taken. What is left is half a one, perhaps, and nobody looks for the rest before it comes.
    fn consume(&mut self, len: usize) {
        self.arrived.consume(len);
        if self.read_out && !self.arrived.is_empty() && !self.has_frame() {
            self.rest();
        }
    }

    /// Reads what has arrived into the long frame or the buffer. `false` if nothing has. Never reads without room: that
    /// would look like the end of the stream.
    fn fill(&mut self, wire: &impl Wire, wait: bool) -> Result<bool, LinkError> {
        if self.stopped {
            return Err(LinkError::Closed);
        }
        let got = if let Some(long) = &mut self.long {
            let left = long.left();
            if left == 0 {
                return Ok(true);
            }
            let got = wire.append(&mut long.bytes, left.min(PART), wait)?;
            long.charge.note_moved(got.unwrap_or(0));
            got
        } else {
            let space = self.arrived.space();
            let room = space.len();
            if room == 0 {
                return Ok(true);
            }
            let got = wire.read(space, wait)?;
            let len = got.unwrap_or(0);
            self.arrived.add(len);
            if len > 0 {
                // A whole frame is charged for itself.
                self.charge_half(0);
            }
            self.read_out = len < room && !wire.holds();
            got
        };
        match got {
            Some(0) => Err(LinkError::Closed),
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Nothing more is there: keeps no more than half a frame needs.
    fn rest(&mut self) {
        let kept = self.arrived.rest();
        self.charge_half(kept);
    }

    /// Even if that is too much: it is no more than every connection may keep, and nobody could wait for less.
    fn charge_half(&mut self, bytes: usize) {
        if bytes != self.half.bytes() {
            self.half.set(bytes);
        }
    }

    /// Whether `take` can do something.
    fn has_frame(&self) -> bool {
        if let Some(long) = &self.long {
            return long.left() == 0;
        }
        self.arrived.bytes().split_first_chunk::<PREFIX>().is_some_and(|(prefix, rest)| {
            let len = u32::from_le_bytes(*prefix) as usize;
            // A frame that is too long for the buffer has to be taken out of it.
            rest.len() >= len || PREFIX + len > arrived::LEN
        })
    }

    /// Looks again and again, and yields the CPU in between: the peer may need this CPU, which is not known here.
    fn spin(&mut self, wire: &impl Wire, limit_ns: u64) -> Result<bool, LinkError> {
        let begun = clock::monotonic_ns();
        loop {
            if self.fill(wire, false)? {
                self.budget.uncrowded();
                return Ok(true);
            }
            if clock::monotonic_ns() - begun >= limit_ns || !self.budget.share_cpu() {
                return Ok(false);
            }
        }
    }
}

impl<W: Wire> Wait for StreamLink<W> {
    fn signal(&self) -> Signal<'_> {
        Signal::Descriptor(self.wire.fd())
    }

    fn arm(&self) -> bool {
        !self.receiver.lock().has_frame() && !self.wire.holds()
    }

    fn spin(&self) -> bool {
        let mut receiver = self.receiver.lock();
        if receiver.has_frame() {
            return true;
        }
        let begun = clock::monotonic_ns();
        let limit = receiver.budget.next();
        // A broken connection is something to look at, too.
        let ready = receiver.spin(&*self.wire, limit).unwrap_or(true);
        if ready {
            receiver.budget.learn(clock::monotonic_ns() - begun);
        } else {
            receiver.rest();
        }
        ready
    }

    fn may_have_more(&self) -> bool {
        let receiver = self.receiver.lock();
        !receiver.read_out || receiver.long.is_some() || receiver.has_frame()
    }

    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError> {
        if receiving && self.wire.holds() {
            return Ok(());
        }
        let events = if receiving { PollFlags::OUT | PollFlags::IN } else { PollFlags::OUT };
        match sys::wait_for(self.wire.fd(), events, Some(Instant::now() + timeout)) {
            // A signal is no reason to leave a frame half sent.
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        self.end.check()
    }
}

impl<W: Wire> Link for StreamLink<W> {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn send(&self, call: CallKey, frame: &Outgoing<'_>, room: Room<'_>) -> Result<Sent, LinkError> {
        let len = frame.len();
        // A payload too long for the prefix is longer than any limit.
        let limit = self.peer_limit.min(u64::from(u32::MAX) - HEAD_ROOM);
        if len as u64 > limit {
            return Err(LinkError::TooLong { len, limit });
        }
        native::encoded(Delimited::ByPrefix, call, frame, |frame| {
            let len = frame.head.len() - PREFIX;
            if len as u64 > HEAD_ROOM {
                return Err(LinkError::HeadTooLong { len, limit: HEAD_ROOM });
            }
            self.outbox.send(frame, room)
        })
    }

    fn flush(&self) -> Result<Flushed, LinkError> {
        self.outbox.flush()
    }

    fn release(&self) -> Result<Sent, LinkError> {
        self.outbox.release()
    }

    fn queued(&self) -> usize {
        self.outbox.queued()
    }

    fn account(&self) -> Option<&Account> {
        Some(self.outbox.account())
    }

    fn stop_sending(&self) {
        self.outbox.close();
    }

    fn stop_receiving(&self) {
        // Handlers may keep the link for long. A thread that receives now has the lock, and finds the end by itself.
        if let Some(mut receiver) = self.receiver.try_lock() {
            (receiver.stopped, receiver.long) = (true, None);
        }
    }

    fn try_receive_part(&self, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        let mut receiver = self.receiver.lock();
        loop {
            receiver.take(slot)?;
            if slot.is_some() {
                if receiver.corks {
                    self.cork(&mut receiver);
                }
                return Ok(());
            }
            if !receiver.fill(&*self.wire, false)? {
                receiver.corked = false;
                receiver.rest();
                return Ok(());
            }
            if receiver.long.as_ref().is_some_and(|long| long.left() > 0) {
                return Err(LinkError::Unfinished);
            }
        }
    }

    fn receive(&self, deadline: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        let mut receiver = self.receiver.lock();
        receiver.take(slot)?;
        if slot.is_some() {
            return Ok(());
        }
        let begun = clock::monotonic_ns();
        let limit = receiver.budget.next_until(deadline);
        let mut arrived = receiver.spin(&*self.wire, limit)?;
        if !arrived {
            arrived = match deadline {
                // One system call sleeps and reads.
                None => receiver.fill(&*self.wire, true)?,
                Some(_) => {
                    sys::wait_for(self.wire.fd(), PollFlags::IN, deadline)? && receiver.fill(&*self.wire, false)?
                }
            };
        }
        if !arrived {
            receiver.rest();
            return Ok(());
        }
        receiver.budget.learn(clock::monotonic_ns() - begun);
        receiver.take(slot)
    }

    fn is_stale(&self) -> bool {
        self.silence.hides_something(&*self.wire)
    }

    fn has_delivered(&self) -> bool {
        match self.properties.peer {
            // The other end of this socket is in this process, and keeps what the peer has not taken.
            Peer::Beyond(_) => sys::is_taken(self.wire.fd()),
            _ => sys::is_delivered(self.wire.fd()),
        }
    }

    fn close(&self) {
        if self.end.come().is_none() {
            return;
        }
        self.outbox.close();
        self.wire.say_goodbye();
        let _ = rustix::net::shutdown(self.wire.fd(), rustix::net::Shutdown::Both);
    }
}

//! A connection over shared memory.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::lock::OuterMutex;
use nearcall_platform::peer_socket::PeerSocket;
use nearcall_platform::{clock, sys};
use nearcall_ring::{Consumer, LaneMemory as _, MappedLane, Record, Segment, SpinBudget, spin};
use rustix::event::PollFlags;
use smallvec::SmallVec;

use super::absence::Absence;
use super::ahead::Ahead;
use super::borrowing::Borrowed;
use super::handover::Handover;
use super::lending::Lending;
use super::reference::{self, Reference, References, Whose};
use super::regions::{Mapped, Note, OwnRegions, Remainder};
use super::room::RoomWaiters;
use super::sender::Sender;
use super::shared::Shared;
use super::socket::{Inbox, ring_bell};
use crate::errors::LinkError;
use crate::frame::incoming::{INLINE, Incoming, Long, is_free};
use crate::frame::outgoing::{CallKey, Outgoing};
use crate::limits::budget::{ALWAYS, Account, Charge};
use crate::link::end::LinkEnd;
use crate::link::native::{self, Delimited};
use crate::link::outbox::{Frame, Outbox, Sink};
use crate::link::{Flushed, HEAD_ROOM, Link, MemoryLink, Properties, Room, Sent, Wait};
use crate::memory::{HandedOver, Lease};
use crate::options::Options;
use crate::peer::Peer;
use crate::signal::Signal;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How long a waiting sender looks for room before it sleeps: about as long as the reader needs to make some.
const ROOM_SPIN_NS: u64 = 20_000;

/// Counts connections, to tell them apart.
static LINKS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(crate) struct ShmLink {
    shared: Arc<Shared>,
    properties: Properties,
    outbox: Outbox<Sender>,
    receiver: OuterMutex<Receiver>,
    /// The receiver's lane, to be looked at without the lock.
    incoming: MappedLane,
    lending: Arc<Lending>,
    absence: Absence,
    /// The longest messages that the peer and this side accept.
    peer_limit: u64,
    limit: u64,
    end: LinkEnd,
    /// Charges what the rings may take.
    _rings: Charge,
    room: RoomWaiters,
}

/// What the peer said of itself in the handshake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerLimits {
    /// The peer's longest message, in bytes.
    pub(crate) message: u64,
    /// How many of this side's buffers the peer keeps track of at a time; 0 if it cannot borrow buffers.
    pub(crate) buffers: u32,
}

#[derive(Debug)]
struct Receiver {
    consumer: Consumer<MappedLane>,
    regions: Mapped,
    borrowed: Borrowed,
    own: Arc<OwnRegions>,
    inbox: Inbox,
    account: Arc<Account>,
    /// The charge for a message of which only parts were taken in.
    unfinished: Option<Charge>,
    budget: SpinBudget,
    /// The wait that sleeps next has spun for this long already, nanoseconds.
    spun: Option<u64>,
}

impl Receiver {
    /// Unmaps the peer's memory. Messages that were received keep their part of it.
    fn forget(&mut self) {
        self.regions.clear();
        self.borrowed.clear();
        self.inbox = Inbox::default();
    }
}

/// Bytes that rings of this size may take, beyond what every connection may have.
pub(crate) fn rings_beyond_all(ring: usize) -> usize {
    (2 * ring).saturating_sub(ALWAYS)
}

impl ShmLink {
    /// `client`: whether the peer is a client.
    pub(crate) fn new(
        socket: PeerSocket,
        segment: Segment,
        peer: Peer,
        limits: PeerLimits,
        client: bool,
        options: &Options,
    ) -> Self {
        let (producer, consumer) = segment.lanes();
        let incoming = segment.incoming();
        segment.own_side().publish_cpu();
        let bells = || AtomicU32::new(0);
        let shared = Arc::new(Shared { segment: segment.clone(), socket, bells_heard: bells(), bells_seen: bells() });
        let rings = rings_beyond_all(shared.segment.ring());
        let account = options.account_beside(rings);
        // Relaxed: only uniqueness counts.
        let link = LINKS.fetch_add(1, Ordering::Relaxed);
        let PeerLimits { message: peer_limit, buffers } = limits;
        let lending = Lending::new(shared.segment.clone(), Arc::clone(&account), buffers, peer_limit, client);
        let handover = Handover::new(Arc::clone(&lending), link);
        let sender = Sender::new(Arc::clone(&shared), producer, handover, Arc::clone(&account));
        let own = sender.own_regions();
        let mut rings = account.charge_anyway(rings);
        rings.begin_work();
        Self {
            shared,
            properties: Properties { pool: lending.pool().cloned(), ..Properties::new(peer) },
            outbox: Outbox::new(sender, Arc::clone(&account)),
            receiver: OuterMutex::new(Receiver {
                consumer,
                regions: Mapped::new(Arc::clone(&account), link),
                borrowed: Borrowed::new(segment, link, Arc::clone(&account)),
                own,
                inbox: Inbox::default(),
                account,
                unfinished: None,
                budget: SpinBudget::new(options.spin),
                spun: None,
            }),
            incoming,
            lending,
            absence: Absence::default(),
            peer_limit,
            limit: options.max_message,
            end: LinkEnd::open(),
            _rings: rings,
            room: RoomWaiters::new(),
        }
    }

    fn wake_peer(&self) {
        if self.shared.segment.peer_side().claim_wake() {
            ring_bell(&self.shared.socket);
        }
    }

    /// Looks for room for a moment. Whether there may be some.
    fn spin_for_room(&self, frame: &Frame<'_>) -> bool {
        let pays = || self.shared.segment.peer_side().runs_elsewhere();
        let look = || self.end.has_come() || self.outbox.peek(|sender| sender.may_have_room(frame)).unwrap_or(false);
        spin(ROOM_SPIN_NS, look, pays).is_some()
    }

    /// Sends a frame whose sender waits for room: spins for a moment, asks the reader for room, then waits.
    #[inline]
    fn send_patiently(
        &self,
        frame: &Frame<'_>,
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<Sent, LinkError> {
        let mut looks = 0;
        let mut blocked = || {
            looks += 1;
            match looks {
                1 if self.spin_for_room(frame) => Ok(()),
                // Ask the reader to tell of room, then look once more before the sleep.
                1 | 2 => {
                    looks = 2;
                    self.outbox.peek(Sender::ask_for_room);
                    Ok(())
                }
                _ => {
                    looks = 0;
                    blocked()
                }
            }
        };
        self.outbox.send(frame, Room::Wait(&mut blocked))
    }

    /// Spins until the ring has something, for at most `limit` nanoseconds and as long as it pays. Whether it has.
    #[inline]
    fn spin_for(&self, receiver: &mut Receiver, limit: u64) -> bool {
        let Receiver { consumer, budget, .. } = receiver;
        let own = self.shared.segment.own_side();
        own.publish_cpu();
        let pays = || {
            own.publish_cpu();
            self.shared.segment.peer_side().runs_elsewhere()
        };
        let waited = spin(limit, || consumer.has_work(), pays);
        if let Some(waited) = waited {
            budget.learn(waited);
        }
        waited.is_some()
    }

    /// Waits until the ring has something, the bell rings, or the deadline passes.
    fn sleep(&self, receiver: &mut Receiver, deadline: Option<Instant>) -> Result<(), LinkError> {
        let spun = receiver.spun.take();
        let limit = spun.unwrap_or_else(|| receiver.budget.next_until(deadline));
        if spun.is_none() && self.spin_for(receiver, limit) {
            let consumer = &mut receiver.consumer;
            if !consumer.has_record() && consumer.producer_waits(None) {
                ring_bell(&self.shared.socket);
            }
            return Ok(());
        }
        let own = self.shared.segment.own_side();
        let Receiver { consumer, inbox, budget, .. } = receiver;
        let begun = clock::monotonic_ns();
        self.outbox.peek(Sender::let_go);
        own.park();
        if consumer.has_record() {
            own.unpark();
            return Ok(());
        }
        if consumer.producer_waits(None) {
            ring_bell(&self.shared.socket);
        }
        let woken = match deadline {
            // One system call sleeps and empties the socket at once.
            None => inbox.read(&self.shared.socket, true),
            Some(_) => match sys::wait_for(self.shared.socket.as_fd(), PollFlags::IN, deadline) {
                Ok(true) => inbox.read(&self.shared.socket, false),
                Ok(false) => Ok(()),
                Err(error) => Err(error.into()),
            },
        };
        own.unpark();
        budget.learn(limit + (clock::monotonic_ns() - begun));
        if let Some(cost) = own.wake_cost_ns() {
            budget.learn_wake_cost(cost);
        }
        self.room.notify(&self.shared);
        match woken {
            // What the peer wrote before it died is still delivered.
            Err(LinkError::Closed) if consumer.has_record() => Ok(()),
            other => other,
        }
    }

    /// Puts the next frame into an empty slot, if there is one. `whole`: continue with a frame until it is complete, else
    /// return after a part.
    #[inline]
    fn take(&self, receiver: &mut Receiver, whole: bool, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        let Receiver { consumer, unfinished, .. } = receiver;
        let Some(record) = consumer.peek()? else {
            if consumer.producer_waits(None) {
                ring_bell(&self.shared.socket);
            }
            return Ok(());
        };
        // A peer chooses the ring's size, but not how much this side takes.
        if record.len as u64 > self.limit.saturating_add(HEAD_ROOM) {
            let limit = self.limit;
            return Err(LinkError::Broken(format!(
                "the peer sent a frame of {} bytes, the limit is {limit}",
                record.len
            )));
        }
        if !record.note && record.len <= INLINE && unfinished.is_none() {
            // The usual frame: it is copied and decoded where it stays.
            let decoded = Incoming::decode_in(slot, record.len, |bytes| {
                consumer.copy(bytes);
                self.consume(consumer, record);
            });
            return decoded;
        }
        if !record.note && is_free(record.len) && unfinished.is_none() {
            return Incoming::decode_longer_in(slot, record.len, |bytes| {
                consumer.copy(bytes);
                self.consume(consumer, record);
            });
        }
        let mut bytes = SmallVec::new();
        bytes.resize(record.len, 0);
        consumer.copy(&mut bytes);
        *slot = self.take_long(receiver, record, bytes, whole)?;
        Ok(())
    }

    /// Takes a frame that has to be charged, or that has more than the bytes in its record.
    #[inline(never)]
    fn take_long(
        &self,
        receiver: &mut Receiver,
        record: Record,
        mut bytes: SmallVec<[u8; INLINE]>,
        whole: bool,
    ) -> Result<Option<Incoming>, LinkError> {
        let Receiver { consumer, regions, borrowed, own, inbox, account, unfinished, .. } = receiver;
        let note = if record.note {
            let note = bytes.first_chunk::<{ Note::LEN }>();
            let note = note.ok_or_else(|| LinkError::Broken("a note in the ring is too short".into()))?;
            let unknown = || LinkError::Broken("a note in the ring has flags that nobody knows".into());
            Some(Note::decode(note).ok_or_else(unknown)?)
        } else {
            None
        };
        let parts = match note {
            Some(note) if note.names => {
                let parsed = reference::decode(&bytes[Note::LEN..]);
                Some(parsed.map_err(|what| LinkError::Broken(format!("a note in the ring is malformed: {what}")))?)
            }
            _ => None,
        };
        let (references, taken) = parts.unwrap_or_default();
        let size = self.size_of(record, note, &references)?;
        // The peer may have changed the note since the last part.
        let mappings = mappings_of(note, &references);
        let charge = match unfinished.take().filter(|held| held.bytes() >= size && held.mappings() >= mappings) {
            None if mappings > 0 => Some(account.charge_mapped(size, mappings).ok_or(LinkError::OverBudget)?),
            None => Incoming::charge(account, size)?,
            held => held,
        };
        let Some(note) = note else {
            self.consume(consumer, record);
            return Incoming::decode(bytes, charge.map(Long::charged)).map(Some);
        };
        let lent: References = references.iter().filter(|one| one.whose == Whose::Sender).copied().collect();
        let lease = loop {
            let mut ready = borrowed.prepare(&lent, self.limit, inbox, &self.shared.socket)?;
            let mut lease = None;
            if ready && note.rest == Remainder::InRegion {
                lease = regions.open(note, self.limit, inbox, &self.shared.socket)?;
                ready = lease.is_some();
            }
            // The read that found a region may have taken a bell from the socket as well.
            self.room.notify(&self.shared);
            if ready {
                break lease;
            }
            if !whole {
                // The record stays in the ring, and the memory taken so far stays charged.
                *unfinished = charge;
                return Err(LinkError::Unfinished);
            }
        };
        let mut lent = borrowed.take(&lent).into_iter();
        let mut handed_over = HandedOver::new();
        for Reference { at, whose, number, offset, len } in references {
            // The peer holds what it hands back until this record is consumed.
            let lease = match whose {
                Whose::Sender => lent.next().expect("as many as there are references"),
                Whose::Reader => {
                    Lease::own(self.lending.handed_back(number, offset, len)?, offset as usize, len as usize)
                }
                Whose::ReaderRegion => Lease::pinned(own.pin(number, offset, len)?, offset as usize, len as usize),
            };
            handed_over.push((at as usize, lease));
        }
        self.consume(consumer, record);
        bytes.drain(..Note::LEN + taken);
        Incoming::decode(bytes, Some(Long { charge, lease, handed_over, kept: None })).map(Some)
    }

    /// Bytes that a frame makes this side keep.
    #[inline]
    fn size_of(&self, record: Record, note: Option<Note>, references: &[Reference]) -> Result<usize, LinkError> {
        let Some(note) = note else { return Ok(record.len) };
        let region = if note.rest == Remainder::InRegion { note.len } else { 0 };
        let total = references.iter().fold(region, |sum, one| sum.saturating_add(one.len));
        if total > self.limit {
            let limit = self.limit;
            return Err(LinkError::Broken(format!("the peer sent a message of {total} bytes, the limit is {limit}")));
        }
        // Memory that is handed back is this side's own.
        let returned = references.iter().filter(|one| one.whose != Whose::Sender).map(|one| one.len).sum::<u64>();
        Ok(record.len.saturating_add(usize::try_from(total - returned).unwrap_or(usize::MAX)))
    }

    #[inline]
    fn consume(&self, consumer: &mut Consumer<MappedLane>, record: Record) {
        consumer.consume(record);
        if consumer.producer_waits(Some(record)) {
            ring_bell(&self.shared.socket);
        }
    }
}

/// The most mappings of the peer's memory that a message may take.
fn mappings_of(note: Option<Note>, references: &[Reference]) -> usize {
    let Some(note) = note else { return 0 };
    let lent = references.iter().filter(|one| one.whose == Whose::Sender).count();
    lent + usize::from(note.rest == Remainder::InRegion)
}

impl Wait for ShmLink {
    fn signal(&self) -> Signal<'_> {
        Signal::Descriptor(self.shared.socket.as_fd())
    }

    fn arm(&self) -> bool {
        let receiver = self.receiver.lock();
        self.outbox.peek(Sender::let_go);
        self.shared.segment.own_side().park();
        if receiver.consumer.has_record() {
            self.shared.segment.own_side().unpark();
            return false;
        }
        if receiver.consumer.producer_waits(None) {
            ring_bell(&self.shared.socket);
        }
        true
    }

    fn spin(&self) -> bool {
        let mut receiver = self.receiver.lock();
        let limit = receiver.budget.next();
        self.spin_for(&mut receiver, limit)
    }

    #[inline]
    fn may_have_more(&self) -> bool {
        self.incoming.may_have_work()
    }

    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError> {
        if receiving {
            // The bell rings for room and for arrivals alike. A signal is no reason to leave a frame half sent.
            return match self.sleep(&mut self.receiver.lock(), Some(Instant::now() + timeout)) {
                Err(LinkError::Interrupted) => Ok(()),
                other => other,
            };
        }
        self.room.wait(&self.shared, timeout);
        // Perhaps no thread receives just now: a sending thread has to notice the end by itself.
        if self.end.has_come() || sys::hung_up(self.shared.socket.as_fd()) { Err(LinkError::Closed) } else { Ok(()) }
    }
}

impl Link for ShmLink {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory(self: Arc<Self>) -> Option<Arc<dyn MemoryLink>> {
        Some(self)
    }

    #[inline]
    fn send(&self, call: CallKey, frame: &Outgoing<'_>, room: Room<'_>) -> Result<Sent, LinkError> {
        if frame.len() as u64 > self.peer_limit {
            return Err(LinkError::TooLong { len: frame.len(), limit: self.peer_limit });
        }
        let by = Delimited::ByRecord;
        let sent = match room {
            Room::Wait(blocked) => native::encoded(by, call, frame, |frame| {
                let _ahead = Ahead::fill(&self.outbox, frame);
                self.send_patiently(frame, blocked)
            }),
            room => native::encoded(by, call, frame, |frame| {
                let _ahead = Ahead::fill(&self.outbox, frame);
                self.outbox.send(frame, room)
            }),
        }?;
        self.wake_peer();
        Ok(sent)
    }

    fn flush(&self) -> Result<Flushed, LinkError> {
        let (done, waited) = self.outbox.flush_and_tell()?;
        // A peer with nothing to do is not woken: two sides that flush whenever they wake would wake each other for
        // ever.
        if waited {
            self.wake_peer();
        }
        Ok(done)
    }

    fn release(&self) -> Result<Sent, LinkError> {
        Ok(Sent::Out)
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

    fn has_delivered(&self) -> bool {
        true
    }

    fn try_receive_part(&self, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        self.take(&mut self.receiver.lock(), false, slot)
    }

    fn receive(&self, deadline: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        let mut receiver = self.receiver.lock();
        self.take(&mut receiver, true, slot)?;
        if slot.is_some() {
            receiver.spun = None;
            return Ok(());
        }
        let slept = self.sleep(&mut receiver, deadline);
        if self.end.has_come() {
            // The closing thread could not take the lock while this thread slept.
            receiver.forget();
        }
        slept?;
        self.take(&mut receiver, true, slot)
    }

    fn is_stale(&self) -> bool {
        self.shared.segment.peer_side().has_left() || self.absence.is_noticed(&self.shared.socket)
    }

    fn close(&self) {
        if self.end.come().is_none() {
            return;
        }
        self.outbox.close();
        self.lending.close();
        self.shared.segment.own_side().leave();
        // The sleeping threads of both sides wake with an end of file. The descriptor stays open until drop.
        let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
        self.room.notify(&self.shared);
        // A closed client may be held for long. A thread that receives now has the lock, and unmaps when it wakes.
        if let Some(mut receiver) = self.receiver.try_lock() {
            receiver.forget();
        }
        drop(self.outbox.peek(Sender::forget));
    }
}

impl MemoryLink for ShmLink {
    fn disarm(&self) {
        self.shared.segment.own_side().unpark();
        self.shared.segment.own_side().publish_cpu();
    }

    fn signalled(&self) -> Result<Option<u64>, LinkError> {
        let mut receiver = self.receiver.lock();
        let Receiver { consumer, inbox, budget, .. } = &mut *receiver;
        let read = inbox.read(&self.shared.socket, false);
        let cost = self.shared.segment.own_side().wake_cost_ns();
        if let Some(cost) = cost {
            budget.learn_wake_cost(cost);
        }
        self.room.notify(&self.shared);
        match read {
            Err(LinkError::Closed) if consumer.has_record() => Ok(cost),
            other => other.map(|()| cost),
        }
    }

    fn spinning_pays(&self) -> bool {
        let peer = self.shared.segment.peer_side();
        !peer.is_parked() && peer.runs_elsewhere()
    }

    fn receive_soon(&self, deadline: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        let mut receiver = self.receiver.lock();
        let limit = receiver.budget.next_until(deadline);
        if self.spin_for(&mut receiver, limit) {
            return self.take(&mut receiver, false, slot);
        }
        receiver.spun = Some(limit);
        Ok(())
    }
}

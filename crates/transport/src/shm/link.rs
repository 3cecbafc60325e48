//! A connection over shared memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::lock::{Condvar, Mutex};
use nearcall_ring::{Consumer, Corrupt, MappedLane, Producer, Segment, SpinBudget, cpu, spin};
use rustix::event::PollFlags;
use smallvec::SmallVec;

use super::regions::{Fresh, Mapped, Note, Outgoing, no_memory};
use super::socket::{Inbox, announce, ring_bell};
use crate::fork;
use crate::link::{HEAD_ROOM, Link, LinkError, Options};
use crate::message::{INLINE, Incoming};
use crate::peer::Peer;
use crate::sys;

/// How long a sender looks for room before it tells the reader that it waits: about what the reader needs to make some.
const ROOM_SPIN_NS: u64 = 20_000;
/// How long a sender that does not receive sleeps before it looks for room by itself.
const ROOM_LOOK: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct ShmLink {
    segment: Segment,
    socket: OwnedFd,
    peer: Peer,
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
    /// Longest message the peer takes, and this side.
    peer_limit: u64,
    limit: u64,
    closed: AtomicBool,
    generation: u32,
    /// Threads that wait for room while another one receives.
    room_waiters: AtomicU32,
    room: (Mutex<()>, Condvar),
    /// Counts the times the bell may have rung for them, and how far the sender had counted before it last looked for room.
    bells_heard: AtomicU32,
    bells_seen: AtomicU32,
}

#[derive(Debug)]
struct Sender {
    producer: Producer<MappedLane>,
    regions: Outgoing,
}

#[derive(Debug)]
struct Receiver {
    consumer: Consumer<MappedLane>,
    regions: Mapped,
    inbox: Inbox,
    budget: SpinBudget,
}

impl ShmLink {
    pub(crate) fn new(socket: OwnedFd, segment: Segment, peer: Peer, peer_limit: u64, options: &Options) -> Self {
        let (producer, consumer) = segment.lanes();
        segment.own_side().publish_cpu();
        Self {
            segment,
            socket,
            peer,
            sender: Mutex::new(Sender { producer, regions: Outgoing::default() }),
            receiver: Mutex::new(Receiver {
                consumer,
                regions: Mapped::default(),
                inbox: Inbox::default(),
                budget: SpinBudget::new(options.spin),
            }),
            peer_limit,
            limit: options.max_message,
            closed: AtomicBool::new(false),
            generation: fork::mark(),
            room_waiters: AtomicU32::new(0),
            room: (Mutex::new(()), Condvar::new()),
            bells_heard: AtomicU32::new(0),
            bells_seen: AtomicU32::new(0),
        }
    }

    fn is_closed(&self) -> bool {
        // Acquire: whoever sees the flag sees the shutdown that came before it.
        self.closed.load(Ordering::Acquire)
    }

    fn wake_peer(&self) {
        if self.segment.peer_side().claim_wake() {
            ring_bell(&self.socket);
        }
    }

    /// Writes one record, waiting for room through `blocked`.
    fn write(
        &self,
        producer: &mut Producer<MappedLane>,
        parts: &[&[u8]],
        len: usize,
        note: bool,
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        while !producer.try_write(parts, note)? {
            self.await_reader(producer, |producer| producer.fits(len), blocked)?;
        }
        Ok(())
    }

    /// Waits, through `blocked`, until the reader has come as far as `ready` wants.
    fn await_reader(
        &self,
        producer: &mut Producer<MappedLane>,
        ready: impl Fn(&mut Producer<MappedLane>) -> Result<bool, Corrupt>,
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let mut starving = false;
        while !ready(producer)? {
            if self.is_closed() || self.segment.peer_side().has_left() {
                return Err(LinkError::Closed);
            }
            let pays = || self.segment.peer_side().runs_elsewhere();
            if spin(ROOM_SPIN_NS, || ready(producer).unwrap_or(true), pays).is_some() {
                continue;
            }
            // SeqCst: read before the last look for room. A bell that is heard from now on is news to `wait_room`.
            self.bells_seen.store(self.bells_heard.load(Ordering::SeqCst), Ordering::Relaxed);
            producer.declare_starved();
            starving = true;
            if !ready(producer)?
                && let Err(error) = blocked()
            {
                producer.declare_sated();
                return Err(error);
            }
        }
        if starving {
            producer.declare_sated();
        }
        Ok(())
    }

    /// Announces a region, waiting for room in the socket through `blocked`: a reader that never sleeps leaves bells there.
    fn announce(&self, fresh: &Fresh, blocked: &mut dyn FnMut() -> Result<(), LinkError>) -> Result<(), LinkError> {
        while !announce(&self.socket, fresh.id, fresh.size, &fresh.fd)? {
            if self.is_closed() {
                return Err(LinkError::Closed);
            }
            blocked()?;
        }
        Ok(())
    }

    /// Lets threads that wait for room look again; called whenever the bell may have rung for them.
    fn notify_room(&self) {
        // SeqCst, both: a waiter counts itself before it looks at the bells for the last time.
        self.bells_heard.fetch_add(1, Ordering::SeqCst);
        if self.room_waiters.load(Ordering::SeqCst) > 0 {
            let _guard = self.room.0.lock();
            self.room.1.notify_all();
        }
    }

    /// Waits until the ring has something, the bell rings, or the deadline passes.
    fn sleep(&self, receiver: &mut Receiver, deadline: Option<Instant>) -> Result<(), LinkError> {
        let own = self.segment.own_side();
        let Receiver { consumer, inbox, budget, .. } = receiver;
        own.publish_cpu();
        let mut limit = budget.next();
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now()).as_nanos();
            limit = limit.min(u64::try_from(left).unwrap_or(u64::MAX));
        }
        let pays = || {
            own.publish_cpu();
            self.segment.peer_side().runs_elsewhere()
        };
        if let Some(waited) = spin(limit, || consumer.has_work(), pays) {
            budget.learn(waited);
            if !consumer.has_record() && consumer.producer_waits(None) {
                ring_bell(&self.socket);
            }
            return Ok(());
        }
        let begun = cpu::monotonic_ns();
        own.park();
        if consumer.has_record() {
            own.unpark();
            return Ok(());
        }
        if consumer.producer_waits(None) {
            ring_bell(&self.socket);
        }
        let woken = match deadline {
            // One system call sleeps and empties the socket at once.
            None => inbox.read(&self.socket, true),
            Some(_) => match sys::wait_for(self.socket.as_fd(), PollFlags::IN, deadline) {
                Ok(true) => inbox.read(&self.socket, false),
                Ok(false) => Ok(()),
                Err(error) => Err(error.into()),
            },
        };
        own.unpark();
        budget.learn(limit + (cpu::monotonic_ns() - begun));
        if let Some(cost) = own.wake_cost_ns() {
            budget.learn_wake_cost(cost);
        }
        self.notify_room();
        match woken {
            // What the peer wrote before it died is still delivered.
            Err(LinkError::Closed) if consumer.has_record() => Ok(()),
            other => other,
        }
    }

    fn take(&self, receiver: &mut Receiver) -> Result<Option<Incoming>, LinkError> {
        let Receiver { consumer, regions, inbox, .. } = receiver;
        let Some(record) = consumer.peek()? else {
            if consumer.producer_waits(None) {
                ring_bell(&self.socket);
            }
            return Ok(None);
        };
        // A peer chooses the ring's size, but not how much we take.
        if record.len as u64 > self.limit.saturating_add(HEAD_ROOM) {
            let limit = self.limit;
            return Err(LinkError::Broken(format!(
                "the peer sent a frame of {} bytes, the limit is {limit}",
                record.len
            )));
        }
        let mut bytes = SmallVec::new();
        if record.len <= INLINE {
            // A fixed length makes clearing it a few instructions.
            bytes = SmallVec::from_buf_and_len([0; INLINE], record.len);
        } else {
            bytes.resize(record.len, 0);
        }
        consumer.copy(&mut bytes);
        consumer.consume(record);
        if consumer.producer_waits(Some(record)) {
            ring_bell(&self.socket);
        }
        if !record.note {
            return Ok(Some(Incoming { bytes, lease: None }));
        }
        let note = bytes.first_chunk::<{ Note::LEN }>().map(Note::decode);
        let note = note.ok_or_else(|| LinkError::Broken("a note in the ring is too short".into()))?;
        let lease = regions.open(note, self.limit, inbox, &self.socket)?;
        // A bell may have been read along with the region.
        self.notify_room();
        bytes.drain(..Note::LEN);
        Ok(Some(Incoming { bytes, lease: Some(lease) }))
    }
}

impl ShmLink {
    fn send_as(
        &self,
        sender: &mut Sender,
        head: &[u8],
        payload: &[&[u8]],
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let len: usize = payload.iter().map(|piece| piece.len()).sum();
        if len as u64 > self.peer_limit {
            return Err(LinkError::TooLong { len, limit: self.peer_limit });
        }
        if self.is_closed() || self.segment.peer_side().has_left() {
            return Err(LinkError::Closed);
        }
        self.segment.own_side().publish_cpu();
        let Sender { producer, regions } = sender;
        // Half the longest record: so that a reader can take one while the next is written.
        if head.len() + len <= producer.longest() / 2 {
            match payload {
                [] => self.write(producer, &[head], head.len(), false, blocked)?,
                [one] => self.write(producer, &[head, one], head.len() + len, false, blocked)?,
                many => {
                    let parts: SmallVec<[&[u8]; 8]> = std::iter::once(head).chain(many.iter().copied()).collect();
                    self.write(producer, &parts, head.len() + len, false, blocked)?;
                }
            }
        } else {
            if Note::LEN + head.len() > producer.longest() {
                let limit = producer.longest() - Note::LEN;
                return Err(LinkError::HeadTooLong { len: head.len(), limit: limit as u64 });
            }
            // Memory that the reader has not even looked at must not pile up.
            while let Some(position) = regions.must_wait(len, producer.consumed()?) {
                self.await_reader(producer, |producer| Ok(producer.consumed()? >= position), blocked)?;
            }
            // Before a region is taken: a sender that gives up leaves nothing behind.
            self.await_reader(producer, |producer| producer.fits(Note::LEN + head.len()), blocked)?;
            let (note, fresh) = regions.place(payload, len).map_err(|error| no_memory(len, error))?;
            if let Some(fresh) = &fresh {
                let announced = self.announce(fresh, &mut || match blocked() {
                    // The reader will soon have read the few bells that fill the socket.
                    Err(LinkError::Full) => self.wait_room(false, ROOM_LOOK),
                    other => other,
                });
                if let Err(error) = announced {
                    self.close();
                    return Err(error.in_the_middle());
                }
            }
            self.write(producer, &[&note.encode(), head], Note::LEN + head.len(), true, blocked)?;
            if let Some(fresh) = &fresh {
                regions.sent(fresh, producer.written());
            }
        }
        Ok(())
    }
}

impl Link for ShmLink {
    fn send(
        &self,
        head: &[u8],
        payload: &[&[u8]],
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        self.send_as(&mut self.sender.lock(), head, payload, blocked)?;
        self.wake_peer();
        Ok(())
    }

    fn try_send(&self, head: &[u8], payload: &[&[u8]]) -> Result<(), LinkError> {
        let mut sender = self.sender.try_lock().ok_or(LinkError::Full)?;
        self.send_as(&mut sender, head, payload, &mut || Err(LinkError::Full))?;
        drop(sender);
        self.wake_peer();
        Ok(())
    }

    fn is_sending(&self) -> bool {
        self.sender.is_locked()
    }

    fn wait_turn(&self, timeout: Duration) {
        drop(self.sender.try_lock_for(timeout));
    }

    fn try_receive(&self) -> Result<Option<Incoming>, LinkError> {
        self.take(&mut self.receiver.lock())
    }

    fn receive(&self, deadline: Option<Instant>) -> Result<Option<Incoming>, LinkError> {
        let mut receiver = self.receiver.lock();
        if let Some(incoming) = self.take(&mut receiver)? {
            return Ok(Some(incoming));
        }
        self.sleep(&mut receiver, deadline)?;
        self.take(&mut receiver)
    }

    fn spin(&self) -> bool {
        let mut receiver = self.receiver.lock();
        let Receiver { consumer, budget, .. } = &mut *receiver;
        let limit = budget.next();
        self.segment.own_side().publish_cpu();
        let pays = || self.segment.peer_side().runs_elsewhere();
        let waited = spin(limit, || consumer.has_work(), pays);
        if let Some(waited) = waited {
            budget.learn(waited);
        }
        waited.is_some()
    }

    fn is_stale(&self) -> bool {
        self.segment.peer_side().has_left()
    }

    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError> {
        if receiving {
            // The bell rings for room and for arrivals alike. A signal is no reason to leave a frame half sent.
            return match self.sleep(&mut self.receiver.lock(), Some(Instant::now() + timeout)) {
                Err(LinkError::Interrupted) => Ok(()),
                other => other,
            };
        }
        // SeqCst, both: counted before the last look at what the waker writes.
        self.room_waiters.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.room.0.lock();
        if self.bells_heard.load(Ordering::SeqCst) == self.bells_seen.load(Ordering::Relaxed) {
            // No longer, because it may be that nobody receives just now, and so nobody hears the bell.
            self.room.1.wait_for(&mut guard, timeout.min(ROOM_LOOK));
        }
        drop(guard);
        self.room_waiters.fetch_sub(1, Ordering::SeqCst);
        // For the same reason a sender must notice the end by itself.
        if self.is_closed() || sys::hung_up(self.socket.as_fd()) { Err(LinkError::Closed) } else { Ok(()) }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn arm(&self) -> bool {
        let receiver = self.receiver.lock();
        self.segment.own_side().park();
        if receiver.consumer.has_record() {
            self.segment.own_side().unpark();
            return false;
        }
        if receiver.consumer.producer_waits(None) {
            ring_bell(&self.socket);
        }
        true
    }

    fn disarm(&self) {
        self.segment.own_side().unpark();
        self.segment.own_side().publish_cpu();
    }

    fn readable(&self) -> Result<Option<u64>, LinkError> {
        let mut receiver = self.receiver.lock();
        let Receiver { consumer, inbox, budget, .. } = &mut *receiver;
        let read = inbox.read(&self.socket, false);
        let cost = self.segment.own_side().wake_cost_ns();
        if let Some(cost) = cost {
            budget.learn_wake_cost(cost);
        }
        self.notify_room();
        match read {
            Err(LinkError::Closed) if consumer.has_record() => Ok(cost),
            other => other.map(|()| cost),
        }
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn spinning_pays(&self) -> bool {
        let peer = self.segment.peer_side();
        !peer.is_parked() && peer.runs_elsewhere()
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn close(&self) {
        if self.generation != fork::generation() {
            // It is our parent's, who goes on using it.
            return;
        }
        // Release: pairs with the acquire in `is_closed`.
        self.closed.store(true, Ordering::Release);
        self.segment.own_side().leave();
        // Both sides' sleepers wake with an end of file; the descriptor itself stays ours until drop.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.notify_room();
    }
}

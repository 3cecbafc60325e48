//! A link for tests, of which the test chooses what comes and what fails.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::lock::Mutex;
use nearcall_transport::{
    CallKey, Flushed, Incoming, Link, LinkError, MemoryLink, Outgoing, Peer, Properties, Room, Sent, Signal, Wait,
};

/// More bytes than a client may leave unread.
pub(crate) const MUCH: usize = 1 << 21;

/// A link of which the test chooses the frames that arrive and the bytes that wait. The poller always reports its
/// socket writable.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) socket: UnixStream,
    _other_end: UnixStream,
    properties: Properties,
    pub(crate) frames: Mutex<VecDeque<Incoming>>,
    pub(crate) queued: Mutex<usize>,
    /// Nothing can be sent any more.
    pub(crate) broken: Mutex<bool>,
    /// The client is gone: the next read fails.
    pub(crate) gone: Mutex<bool>,
    /// Its reader tells of room by itself, as that of a ring.
    is_memory: bool,
    /// It pays to spin for what comes next.
    pub(crate) pays: Mutex<bool>,
    /// What panics.
    pub(crate) faulty: Mutex<Faulty>,
}

/// What of a link panics, as a fault of ours would.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) enum Faulty {
    #[default]
    Nothing,
    Reading,
    Releasing,
    Flushing,
    Sending,
}

impl Chosen {
    /// A link over a socket by which these frames have come.
    pub(crate) fn new(frames: VecDeque<Incoming>) -> Arc<Self> {
        Self::of(frames, false, true)
    }

    /// The same, over memory.
    pub(crate) fn over_memory(frames: VecDeque<Incoming>) -> Arc<Self> {
        Self::of(frames, true, true)
    }

    /// A link over a socket, over which nothing is left to do when the client hangs up.
    pub(crate) fn without_work(frames: VecDeque<Incoming>) -> Arc<Self> {
        Self::of(frames, false, false)
    }

    fn of(frames: VecDeque<Incoming>, is_memory: bool, leaves_work: bool) -> Arc<Self> {
        let (socket, other_end) = UnixStream::pair().expect("descriptors");
        Arc::new(Self {
            socket,
            _other_end: other_end,
            properties: Properties { leaves_work, ..Properties::new(Peer::Local { pid: 0, uid: 0, gid: 0 }) },
            frames: frames.into(),
            queued: Mutex::default(),
            broken: Mutex::default(),
            gone: Mutex::default(),
            is_memory,
            pays: Mutex::default(),
            faulty: Mutex::default(),
        })
    }

    fn may_fail(&self, here: Faulty) {
        assert!(*self.faulty.lock() != here, "{here:?} has a fault");
    }
}

impl Link for Chosen {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory(self: Arc<Self>) -> Option<Arc<dyn MemoryLink>> {
        self.is_memory.then_some(self as _)
    }

    fn send(&self, _: CallKey, _: &Outgoing<'_>, _: Room<'_>) -> Result<Sent, LinkError> {
        self.may_fail(Faulty::Sending);
        if *self.broken.lock() {
            return Err(LinkError::Closed);
        }
        *self.queued.lock() += MUCH;
        Ok(Sent::Queued)
    }

    fn release(&self) -> Result<Sent, LinkError> {
        self.may_fail(Faulty::Releasing);
        Ok(Sent::Out)
    }

    fn flush(&self) -> Result<Flushed, LinkError> {
        self.may_fail(Faulty::Flushing);
        match (*self.broken.lock(), *self.queued.lock()) {
            (true, _) => Err(LinkError::Closed),
            (false, 0) => Ok(Flushed::All),
            (false, _) => Ok(Flushed::Full),
        }
    }

    fn queued(&self) -> usize {
        *self.queued.lock()
    }

    fn try_receive_part(&self, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        self.may_fail(Faulty::Reading);
        *slot = self.frames.lock().pop_front();
        if slot.is_none() && *self.gone.lock() { Err(LinkError::Closed) } else { Ok(()) }
    }

    fn has_delivered(&self) -> bool {
        true
    }

    fn stop_sending(&self) {
        *self.queued.lock() = 0;
    }

    fn close(&self) {}

    fn receive(&self, _: Option<Instant>, _: &mut Option<Incoming>) -> Result<(), LinkError> {
        self.may_fail(Faulty::Reading);
        Ok(())
    }

    fn is_stale(&self) -> bool {
        false
    }
}

impl Wait for Chosen {
    fn signal(&self) -> Signal<'_> {
        Signal::Descriptor(self.socket.as_fd())
    }

    fn arm(&self) -> bool {
        self.frames.lock().is_empty()
    }

    fn spin(&self) -> bool {
        !self.frames.lock().is_empty()
    }

    fn may_have_more(&self) -> bool {
        self.is_memory || !self.frames.lock().is_empty()
    }

    fn wait_room(&self, _: bool, _: Duration) -> Result<(), LinkError> {
        unreachable!("a server does not wait for room")
    }
}

impl MemoryLink for Chosen {
    fn disarm(&self) {}

    fn signalled(&self) -> Result<Option<u64>, LinkError> {
        assert!(self.is_memory, "only rings have a bell");
        Ok(None)
    }

    fn spinning_pays(&self) -> bool {
        *self.pays.lock()
    }

    fn receive_soon(&self, _: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        if self.spin() { self.try_receive_part(slot) } else { Ok(()) }
    }
}

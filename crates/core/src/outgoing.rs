//! A frame about to be sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_transport::{Link, LinkError};
use nearcall_wire::{FrameHead, Kind, Metadata, PartsTable, flags};

use crate::AroundWait;

/// Waits until no other thread is in the middle of sending, at most until then.
///
/// To be called before sending: a sender that waits for room lets go of what the caller holds (see [`AroundWait`]) and
/// takes it again before it goes on, so nobody may hold that while waiting for such a sender. Between this and sending
/// only threads that do not hold it can begin to send, and they do not wait for it.
pub(crate) fn await_turn(link: &dyn Link, around_wait: &AroundWait, until: Option<Instant>) {
    const SLICE: Duration = Duration::from_millis(100);
    while link.is_sending() {
        let left = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return;
        }
        (around_wait)(&mut || link.wait_turn(left.min(SLICE)));
    }
}

/// Sends the rest of a frame in a thread of its own: whoever sent the beginning does not wait, and may never send again.
pub(crate) fn finish_aside(link: &Arc<dyn Link>) {
    if !finish_in_thread(link, ()) {
        finish(&**link);
    }
}

/// The same, keeping `meanwhile` until the rest is sent. `false` if no thread could be started: nothing is sent then, and
/// `meanwhile` is dropped.
pub(crate) fn finish_in_thread(link: &Arc<dyn Link>, meanwhile: impl Send + 'static) -> bool {
    let link = Arc::clone(link);
    let send = move || {
        let _meanwhile = meanwhile;
        finish(&*link);
    };
    std::thread::Builder::new().name("nearcall-rest".into()).spawn(send).is_ok()
}

fn finish(link: &dyn Link) {
    const SLICE: Duration = Duration::from_millis(100);
    // If it fails, the link is closed, which every user of the connection notices.
    let _ = link.finish(&mut || link.wait_room(false, SLICE));
}

/// A payload in pieces: the codec's bytes and buffers beside them, or one buffer that is the payload.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// The payload as it is.
    Whole(&'a [u8]),
    /// A body, and buffers beside it.
    Parts(&'a [u8], &'a [&'a [u8]]),
}

/// A frame to send.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// What it is for.
    pub kind: Kind,
    /// [`Outgoing::NAMED`] and [`Outgoing::ONEWAY`].
    pub flags: u8,
    /// Index of the method, for calls.
    pub method: u16,
    /// Time left, microseconds.
    pub deadline_us: Option<u64>,
    /// Keys and values beside the payload.
    pub metadata: Option<Metadata>,
    /// The payload.
    pub body: Body<'a>,
}

impl<'a> Outgoing<'a> {
    /// The arguments are a map by name.
    pub const NAMED: u8 = flags::NAMED;
    /// Nobody waits for a reply.
    pub const ONEWAY: u8 = flags::ONEWAY;

    /// A frame without options.
    #[must_use]
    pub fn new(kind: Kind, body: Body<'a>) -> Self {
        Self { kind, flags: 0, method: 0, deadline_us: None, metadata: None, body }
    }

    /// Bytes of payload.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.body {
            Body::Whole(bytes) => bytes.len(),
            Body::Parts(body, buffers) => body.len() + buffers.iter().map(|buffer| buffer.len()).sum::<usize>(),
        }
    }

    /// Whether the payload is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn send(
        &self,
        call: u32,
        link: &dyn Link,
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        self.framed(call, |head, payload| link.send(head, payload, blocked))
    }

    /// Sends it if that needs no waiting; else [`LinkError::Full`].
    pub(crate) fn try_send(&self, call: u32, link: &dyn Link) -> Result<(), LinkError> {
        self.framed(call, |head, payload| link.try_send(head, payload))
    }

    /// Head and payload, to be sent later.
    pub(crate) fn to_bytes(&self, call: u32) -> (Vec<u8>, Vec<u8>) {
        self.framed(call, |head, payload| (head.to_vec(), payload.concat()))
    }

    #[inline]
    fn framed<T>(&self, call: u32, send: impl FnOnce(&[u8], &[&[u8]]) -> T) -> T {
        if let (Body::Whole(bytes), None, None) = (self.body, self.deadline_us, &self.metadata) {
            return send(&FrameHead::plain(self.kind, self.flags, self.method, call), &[bytes]);
        }
        let mut head = FrameHead::new(self.kind, call);
        head.flags = self.flags;
        head.method = self.method;
        if self.deadline_us.is_some() || self.metadata.is_some() {
            head.extras_mut().deadline_us = self.deadline_us;
            head.extras_mut().metadata.clone_from(&self.metadata);
        }
        let mut pieces = Vec::new();
        match self.body {
            Body::Whole(bytes) => pieces.push(bytes),
            Body::Parts(body, buffers) => {
                let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
                head.extras_mut().parts = Some(PartsTable::of(&lengths));
                pieces.reserve(buffers.len() + 1);
                pieces.push(body);
                pieces.extend_from_slice(buffers);
            }
        }
        let mut encoded = Vec::with_capacity(64);
        head.encode(&mut encoded);
        send(&encoded, &pieces)
    }
}

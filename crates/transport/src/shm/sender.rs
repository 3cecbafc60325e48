//! The sending half of a connection over shared memory: frames go into the ring, long payloads beside it.

use std::sync::Arc;

use nearcall_ring::{MappedLane, Producer};
use smallvec::SmallVec;

use super::handover::Handover;
use super::reference;
use super::regions::{Filled, Note, OwnRegions, RegionSpot, SentRegions, Wanted};
use super::shared::Shared;
use crate::errors::LinkError;
use crate::limits::budget::Account;
use crate::link::Flushed;
use crate::link::outbox::{Frame, Sink};
use crate::sync::Ordering;

#[derive(Debug)]
pub(super) struct Sender {
    shared: Arc<Shared>,
    producer: Producer<MappedLane>,
    regions: SentRegions,
    handover: Handover,
    /// The reader was told that there was no room.
    starved: bool,
    /// The payload of a frame whose sender fills a region before it has the turn, by the address of its list of pieces; and
    /// the region. One at a time: a filled region takes memory while its frame waits.
    ahead: Option<(usize, Option<Filled>)>,
}

impl Sink for Sender {
    #[inline]
    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize, _most: usize) -> Result<Flushed, LinkError> {
        // A frame is written whole or not at all: `sent` says only whether it is.
        *sent = 0;
        if self.shared.segment.peer_side().has_left() {
            return Err(LinkError::Closed);
        }
        self.shared.segment.own_side().publish_cpu();
        self.let_go();
        if !self.try_put(frame)? {
            return Ok(Flushed::Full);
        }
        if std::mem::take(&mut self.starved) {
            self.producer.declare_sated();
        }
        *sent = frame.head.len() + frame.payload_len;
        Ok(Flushed::All)
    }

    fn ask_for_room(&mut self) -> bool {
        // SeqCst: `bells_heard` is read before the last look for room, so `RoomWaiters` notices every later bell.
        self.shared.bells_seen.store(self.shared.bells_heard.load(Ordering::SeqCst), Ordering::Relaxed);
        self.producer.declare_starved();
        self.starved = true;
        true
    }
}

impl Sender {
    pub(super) fn new(
        shared: Arc<Shared>,
        producer: Producer<MappedLane>,
        handover: Handover,
        account: Arc<Account>,
    ) -> Self {
        Self { shared, producer, regions: SentRegions::new(account), handover, starved: false, ahead: None }
    }

    /// Regions that the peer may hand back.
    pub(super) fn own_regions(&self) -> Arc<OwnRegions> {
        self.regions.own()
    }

    /// Takes out the memory kept for later messages, when no more are sent.
    pub(super) fn forget(&mut self) -> impl Drop + use<> {
        self.regions.forget()
    }

    /// Releases what was kept for messages that the peer has read by now.
    pub(super) fn let_go(&mut self) {
        if self.handover.awaits_reader()
            && let Ok(consumed) = self.producer.consumed()
        {
            self.handover.let_go(consumed);
        }
    }

    /// The region that the sender of this frame is to fill before it has the turn, if that takes long. The sender says what
    /// has become of that, and takes back what is [left](Self::take_ahead) before its payload is gone.
    pub(super) fn begin_ahead(&mut self, frame: &Frame<'_>) -> Option<Wanted> {
        if self.ahead.is_some() || self.handover.may_plan(frame.payload) {
            return None;
        }
        let wanted = self.regions.wanted_ahead(frame.payload_len, self.producer.consumed().ok()?)?;
        self.ahead = Some((key(frame.payload), None));
        Some(wanted)
    }

    pub(super) fn filled_ahead(&mut self, filled: Option<Filled>) {
        if let Some((_, place)) = &mut self.ahead {
            *place = filled;
        }
    }

    pub(super) fn take_ahead(&mut self) -> Option<Filled> {
        self.ahead.take().and_then(|(_, filled)| filled)
    }

    /// Writes a frame if there is room for all of it.
    #[inline]
    fn try_put(&mut self, frame: &Frame<'_>) -> Result<bool, LinkError> {
        let Frame { head, payload, payload_len: len } = *frame;
        // Half the longest record: so that a reader can take one while the next is written.
        if head.len() + len > self.producer.longest() / 2 {
            return self.try_put_beside(head, payload, len);
        }
        Ok(match payload {
            [] => self.producer.try_write(&[head], false)?,
            [one] => self.producer.try_write(&[head, one], false)?,
            many => {
                let parts: SmallVec<[&[u8]; 8]> = std::iter::once(head).chain(many.iter().copied()).collect();
                self.producer.try_write(&parts, false)?
            }
        })
    }

    /// Whether the frame may fit now. Also true for a broken ring, so that the next attempt reports it.
    pub(super) fn may_have_room(&mut self, frame: &Frame<'_>) -> bool {
        let len = frame.head.len() + frame.payload_len;
        let record = if len > self.producer.longest() / 2 { Note::LEN + frame.head.len() } else { len };
        self.producer.fits(record).unwrap_or(true)
    }

    /// Writes a frame that is too long for the ring: parts of the payload that can be handed over stay in their
    /// buffers, the rest goes into a region, or into the ring if it is short.
    fn try_put_beside(&mut self, head: &[u8], payload: &[&[u8]], len: usize) -> Result<bool, LinkError> {
        let Self { shared, producer, regions, handover, ahead, .. } = self;
        let shortest = Note::LEN + head.len();
        if shortest > producer.longest() {
            let limit = producer.longest() - Note::LEN;
            return Err(LinkError::HeadTooLong { len: head.len(), limit: limit as u64 });
        }
        if !producer.fits(shortest)? {
            return Ok(false);
        }
        if let Some((of, filled @ Some(_))) = ahead
            && *of == key(payload)
        {
            if filled.as_ref().is_some_and(Filled::is_new) && regions.must_wait(len, producer.consumed()?) {
                return Ok(false);
            }
            return match regions.adopt(filled, &shared.socket)? {
                None => Ok(false),
                Some((place, note)) => Self::write_note(producer, regions, place, &[&note.encode(), head]),
            };
        }
        let room = producer.longest() - shortest;
        let Some(plan) = handover.plan(payload, room, &shared.socket)? else {
            return match Self::to_region(shared, producer, regions, payload, len)? {
                None => Ok(false),
                Some((place, note)) => Self::write_note(producer, regions, place, &[&note.encode(), head]),
            };
        };
        if plan.lent > 0 && handover.must_wait(plan.lent) {
            return Ok(false);
        }
        let names = reference::encode(&plan.references);
        let record = shortest + names.len();
        let in_ring = record + plan.rest_len <= producer.longest() / 2;
        if !producer.fits(if in_ring { record + plan.rest_len } else { record })? {
            return Ok(false);
        }
        if in_ring {
            let note = Note::without_region().encode();
            let first = [&note[..], &names, head];
            let parts: SmallVec<[&[u8]; 8]> = first.into_iter().chain(plan.rest.iter().copied()).collect();
            let written = producer.try_write(&parts, true)?;
            debug_assert!(written, "looked at just now");
        } else {
            let rest = Self::to_region(shared, producer, regions, &plan.rest, plan.rest_len)?;
            let Some((place, note)) = rest else { return Ok(false) };
            let note = Note { names: true, ..note };
            Self::write_note(producer, regions, place, &[&note.encode(), &names, head])?;
        }
        let (lent, kept) = (plan.lent, plan.settle());
        handover.sent(producer.written(), lent, kept);
        Ok(true)
    }

    /// Copies bytes into a region. Returns the region's note, to be written next; `None` if there is no room.
    fn to_region(
        shared: &Shared,
        producer: &mut Producer<MappedLane>,
        regions: &mut SentRegions,
        pieces: &[&[u8]],
        len: usize,
    ) -> Result<Option<(RegionSpot, Note)>, LinkError> {
        // Memory that the reader has not even looked at must not pile up.
        if regions.must_wait(len, producer.consumed()?) {
            return Ok(None);
        }
        let place = regions.place(len).map_err(|error| LinkError::no_memory(len, error))?;
        if !regions.announce(place, &shared.socket)? {
            return Ok(None);
        }
        Ok(Some((place, regions.fill(place, pieces, len))))
    }

    /// Writes the note of a region; there is room for it.
    fn write_note(
        producer: &mut Producer<MappedLane>,
        regions: &mut SentRegions,
        place: RegionSpot,
        parts: &[&[u8]],
    ) -> Result<bool, LinkError> {
        let written = producer.try_write(parts, true)?;
        debug_assert!(written, "looked at just now");
        regions.sent(place, producer.written());
        Ok(true)
    }
}

/// Tells the list of a payload's pieces from all others, while it lives.
fn key(payload: &[&[u8]]) -> usize {
    payload.as_ptr().addr()
}

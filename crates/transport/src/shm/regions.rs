//! Memory for long payloads, each in a sealed file of its own, used again once the reader has let go of it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nearcall_ring::Mapping;

use super::socket::{Announced, Inbox};
use crate::link::{LinkError, is_exhaustion};
use crate::message::{Lease, REGION_HEAD, RegionHead};

/// Memory kept mapped for the next long payloads, bytes per direction; beyond it a region serves one message only.
const KEPT: usize = 32 << 20;
/// Smallest region.
const SMALLEST: usize = 64 << 10;
/// Regions announced before the reader has come to the first of them: fewer than it allows, and far fewer than descriptors
/// fit into a socket.
const MOST_UNDER_WAY: usize = 32;
/// Bytes of a note in the ring.
const NOTE_LEN: usize = 13;

/// What the ring says of a long payload: which region, how long, and whether the region is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) id: u32,
    pub(super) len: u64,
    pub(super) last_use: bool,
}

impl Note {
    pub(super) const LEN: usize = NOTE_LEN;

    pub(super) fn encode(self) -> [u8; NOTE_LEN] {
        let mut out = [0; NOTE_LEN];
        out[..4].copy_from_slice(&self.id.to_le_bytes());
        out[4..12].copy_from_slice(&self.len.to_le_bytes());
        out[12] = u8::from(self.last_use);
        out
    }

    pub(super) fn decode(bytes: &[u8; NOTE_LEN]) -> Self {
        Self {
            id: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            len: u64::from_le_bytes(bytes[4..12].try_into().expect("8 bytes")),
            last_use: bytes[12] != 0,
        }
    }
}

/// The sender's regions.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    kept: Vec<(u32, Mapping)>,
    kept_bytes: usize,
    next: u32,
    /// Regions announced that the reader has not come to yet: where in the ring their note ends, and the bytes that are
    /// not ours to use again.
    under_way: VecDeque<(u64, usize)>,
}

/// A region that the peer does not know yet.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) id: u32,
    pub(super) size: u64,
    pub(super) fd: OwnedFd,
    used_once: bool,
}

impl Outgoing {
    /// Whether the next payload of `len` bytes must wait until the reader has consumed the ring up to the returned
    /// position. It has consumed it up to `consumed` now.
    pub(super) fn must_wait(&mut self, len: usize, consumed: u64) -> Option<u64> {
        while self.under_way.front().is_some_and(|(position, _)| *position <= consumed) {
            self.under_way.pop_front();
        }
        let (position, _) = *self.under_way.front()?;
        if self.free(len + REGION_HEAD).is_some() {
            return None;
        }
        let bytes: usize = self.under_way.iter().map(|(_, bytes)| bytes).sum();
        (self.under_way.len() >= MOST_UNDER_WAY || (bytes > 0 && bytes + len > KEPT)).then_some(position)
    }

    /// The smallest region that fits and is free: a short message must not occupy the only long region.
    fn free(&self, need: usize) -> Option<&(u32, Mapping)> {
        let fits = |mapping: &Mapping| mapping.len() >= need && RegionHead::of(mapping).is_free();
        self.kept.iter().filter(|(_, mapping)| fits(mapping)).min_by_key(|(_, mapping)| mapping.len())
    }

    /// Puts a payload of `len` bytes, in pieces, into a region, and returns the note for the ring. A fresh region must be
    /// announced before that is written, and [accounted for](Outgoing::sent) after.
    pub(super) fn place(&mut self, pieces: &[&[u8]], len: usize) -> io::Result<(Note, Option<Fresh>)> {
        let need = len + REGION_HEAD;
        if let Some((id, mapping)) = self.free(need) {
            fill(mapping, pieces);
            return Ok((Note { id: *id, len: len as u64, last_use: false }, None));
        }
        let mut size = need.next_power_of_two().max(SMALLEST);
        let keep = self.kept_bytes + size <= KEPT;
        if !keep {
            // Used once: no room to grow into.
            size = need.next_multiple_of(4096);
        }
        let (mapping, fd) = Mapping::create("nearcall-message", size, true)?;
        fill(&mapping, pieces);
        let id = self.fresh_id();
        if keep {
            self.kept_bytes += size;
            self.kept.push((id, mapping));
        }
        let note = Note { id, len: len as u64, last_use: !keep };
        Ok((note, Some(Fresh { id, size: size as u64, fd, used_once: !keep })))
    }

    /// A number that no living region has: they are used up one by one, but a kept region keeps its own.
    fn fresh_id(&mut self) -> u32 {
        loop {
            let id = self.next;
            self.next = id.wrapping_add(1);
            if self.kept.iter().all(|(kept, _)| *kept != id) {
                return id;
            }
        }
    }

    /// The note of a fresh region is in the ring, which was written up to `position` by that.
    pub(super) fn sent(&mut self, fresh: &Fresh, position: u64) {
        self.under_way.push_back((position, if fresh.used_once { fresh.size as usize } else { 0 }));
    }
}

/// The error of a message of `len` bytes for which the system gives no memory.
pub(super) fn no_memory(len: usize, error: io::Error) -> LinkError {
    if is_exhaustion(&error) {
        return LinkError::Exhausted(format!("no shared memory for a message of {len} bytes: {error}"));
    }
    error.into()
}

fn fill(mapping: &Mapping, pieces: &[&[u8]]) {
    RegionHead::of(mapping).take();
    let mut at = REGION_HEAD;
    for piece in pieces {
        mapping.write(at, piece);
        at += piece.len();
    }
}

/// The receiver's view of the peer's regions.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    regions: HashMap<u32, Region>,
    bytes: u64,
}

/// A region of the peer's.
#[derive(Debug)]
struct Region {
    mapping: Arc<Mapping>,
    /// So many bytes of it were asked of the system. The rest may be a hole of any size: memory and time for it are only
    /// spent on bytes of messages.
    present: usize,
}

impl Mapped {
    /// The payload that a note speaks of. `limit` is the longest message this side takes.
    pub(super) fn open(
        &mut self,
        note: Note,
        limit: u64,
        inbox: &mut Inbox,
        socket: &OwnedFd,
    ) -> Result<Lease, LinkError> {
        if note.len > limit {
            return Err(LinkError::Broken(format!(
                "the peer sent a message of {} bytes, the limit is {limit}",
                note.len
            )));
        }
        if !self.regions.contains_key(&note.id) {
            let region = self.map(&inbox.region(socket, note.id)?, limit)?;
            self.regions.insert(note.id, region);
        }
        let region = self.regions.get_mut(&note.id).expect("it is there, or was put there just now");
        if note.len > (region.mapping.len() - REGION_HEAD) as u64 {
            return Err(LinkError::Broken("the peer's message is longer than the memory it lies in".into()));
        }
        let needed = REGION_HEAD + note.len as usize;
        if needed > region.present {
            region.mapping.populate(region.present, needed).map_err(|error| no_memory(needed, error))?;
            region.present = needed;
        }
        let mapping = Arc::clone(&region.mapping);
        if note.last_use && self.regions.remove(&note.id).is_some() {
            self.bytes -= mapping.len() as u64;
        }
        Ok(Lease::new(mapping, note.len as usize))
    }

    fn map(&mut self, announced: &Announced, limit: u64) -> Result<Region, LinkError> {
        let size = usize::try_from(announced.size).unwrap_or(usize::MAX);
        // A peer may keep what the library keeps, and one message more; everything else is an attack on our memory.
        let most = limit.max(SMALLEST as u64).saturating_mul(2).saturating_add(KEPT as u64 + 4096);
        if size <= REGION_HEAD || self.bytes.saturating_add(announced.size) > most {
            return Err(LinkError::Broken("the peer sent more shared memory than it may".into()));
        }
        let mapping = Mapping::open(announced.fd.as_fd(), size, false).map_err(|error| no_memory(size, error))?;
        self.bytes += size as u64;
        Ok(Region { mapping: Arc::new(mapping), present: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back() {
        for note in [Note { id: 7, len: 1 << 40, last_use: true }, Note { id: u32::MAX, len: 0, last_use: false }] {
            assert_eq!(Note::decode(&note.encode()), note);
        }
    }

    #[test]
    fn numbers_that_wrap_pass_over_kept_regions() {
        let mut regions = Outgoing::default();
        let place = |regions: &mut Outgoing| regions.place(&[&vec![1; 100_000]], 100_000).expect("memory").0.id;
        assert_eq!([place(&mut regions), place(&mut regions)], [0, 1]);
        regions.next = u32::MAX;
        assert_eq!([place(&mut regions), place(&mut regions)], [u32::MAX, 2]);
    }

    #[test]
    fn a_sender_is_not_far_ahead_of_its_reader() {
        let mut regions = Outgoing::default();
        let mut position = 0;
        let mut send = |regions: &mut Outgoing, len: usize| {
            let (_, fresh) = regions.place(&[&vec![0; len]], len).expect("memory");
            position += 32;
            regions.sent(&fresh.expect("a fresh one"), position);
        };
        for _ in 0..MOST_UNDER_WAY {
            assert_eq!(regions.must_wait(70_000, 0), None);
            send(&mut regions, 70_000);
        }
        assert_eq!(regions.must_wait(70_000, 0), Some(32), "too many");
        assert_eq!(regions.must_wait(70_000, 31), Some(32));
        assert_eq!(regions.must_wait(70_000, 32), None, "one was taken");
        assert_eq!(regions.must_wait(40 << 20, u64::MAX), None, "the first may be of any length");
        send(&mut regions, 40 << 20);
        assert_eq!(regions.must_wait(40 << 20, 0), Some(32 * 33), "too long together");
    }
}

//! Memory for long payloads, each in a sealed file of its own, used again once the reader has let go of it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nearcall_ring::Mapping;

use super::socket::{Announced, Inbox, announce};
use crate::link::LinkError;
use crate::message::{Lease, REGION_HEAD, RegionHead};

/// Memory kept mapped for the next long payloads, bytes per direction; beyond it a region serves one message only.
const KEPT: usize = 32 << 20;
/// Smallest region.
const SMALLEST: usize = 64 << 10;
/// Longest payload a record in the ring can name.
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
}

impl Outgoing {
    /// Puts a payload of `len` bytes, in pieces, into a region that the peer can see, and returns the note for the ring.
    pub(super) fn place(&mut self, socket: &OwnedFd, pieces: &[&[u8]], len: usize) -> io::Result<Note> {
        let need = len + REGION_HEAD;
        let fits = |mapping: &Mapping| mapping.len() >= need && RegionHead::of(mapping).is_free();
        // The smallest that fits: a short message must not occupy the only long region.
        let found = self.kept.iter().filter(|(_, mapping)| fits(mapping)).min_by_key(|(_, mapping)| mapping.len());
        if let Some((id, mapping)) = found {
            fill(mapping, pieces);
            return Ok(Note { id: *id, len: len as u64, last_use: false });
        }
        let mut size = need.next_power_of_two().max(SMALLEST);
        let keep = self.kept_bytes + size <= KEPT;
        if !keep {
            // Used once: no room to grow into.
            size = need.next_multiple_of(4096);
        }
        let (mapping, fd) = Mapping::create("nearcall-message", size, true)?;
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        announce(socket, id, size as u64, &fd)?;
        fill(&mapping, pieces);
        if keep {
            self.kept_bytes += size;
            self.kept.push((id, mapping));
        }
        Ok(Note { id, len: len as u64, last_use: !keep })
    }
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
    regions: HashMap<u32, Arc<Mapping>>,
    bytes: u64,
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
        let mapping = match self.regions.get(&note.id) {
            Some(mapping) => Arc::clone(mapping),
            None => self.map(inbox.region(socket, note.id)?, limit)?,
        };
        if note.len > (mapping.len() - REGION_HEAD) as u64 {
            return Err(LinkError::Broken("the peer's message is longer than the memory it lies in".into()));
        }
        if note.last_use && self.regions.remove(&note.id).is_some() {
            self.bytes -= mapping.len() as u64;
        }
        Ok(Lease::new(mapping, note.len as usize))
    }

    fn map(&mut self, announced: Announced, limit: u64) -> Result<Arc<Mapping>, LinkError> {
        let size = usize::try_from(announced.size).unwrap_or(usize::MAX);
        // A peer may keep what the library keeps, and one message more; everything else is an attack on our memory.
        let most = KEPT as u64 + 2 * limit.max(SMALLEST as u64) + 4096;
        if size <= REGION_HEAD || self.bytes + size as u64 > most {
            return Err(LinkError::Broken("the peer sent more shared memory than it may".into()));
        }
        let mapping = Arc::new(Mapping::open(announced.fd.as_fd(), size, true)?);
        self.bytes += size as u64;
        self.regions.insert(announced.id, Arc::clone(&mapping));
        Ok(mapping)
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
}

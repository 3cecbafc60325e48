//! Memory for long payloads, each in a sealed file of its own. It is used again once the reader has released it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use nearcall_platform::lock::InnerMutex;
use nearcall_platform::peer_socket::PeerSocket;
use nearcall_ring::Mapping;

use super::socket::{Announced, Inbox, announce};
use crate::errors::LinkError;
use crate::limits::budget::{Account, KeptBytes};
use crate::link::PART;
use crate::memory::{Lease, Pages, Pin, REGION_HEAD, RegionMemory};

/// Bytes of memory that stay mapped for the next long payloads, per direction. A region beyond that serves one message
/// only.
const KEPT_BYTES: usize = 32 << 20;
const PAGE: usize = 4096;
/// A region is filled before its sender has the turn if the payload has so many bytes: others wait for the turn, and the thread
/// that receives may be among them.
pub(super) const AHEAD: usize = 1 << 20;
/// The name of the memory, for people.
const NAME: &str = "nearcall-message";
/// Smallest region.
const SMALLEST: usize = 64 << 10;
/// Regions that may be announced before the reader has come to the first of them: fewer than the reader allows, and far
/// fewer than the descriptors that fit into a socket.
const MOST_UNDER_WAY: usize = 32;
/// Bytes of a note in the ring.
const NOTE_LEN: usize = 13;
/// Bits in a note's last byte.
const LAST_USE: u8 = 1;
const NAMES: u8 = 2;
const REST_IN_RING: u8 = 4;

/// What the ring says of a long payload: its region, its length, and whether the region is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) id: u32,
    pub(super) len: u64,
    pub(super) last_use: bool,
    /// References to parts of the payload follow.
    pub(super) names: bool,
    pub(super) rest: Remainder,
}

/// Where the part of the payload is that no reference names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remainder {
    /// In the region.
    InRegion,
    /// Behind the frame's head, in the ring. There is no region.
    InRing,
}

impl Note {
    pub(super) const LEN: usize = NOTE_LEN;

    /// A note of a frame whose payload is in buffers and in the ring, without a region.
    pub(super) fn without_region() -> Self {
        Self { id: 0, len: 0, last_use: false, names: true, rest: Remainder::InRing }
    }

    pub(super) fn encode(self) -> [u8; NOTE_LEN] {
        let mut out = [0; NOTE_LEN];
        out[..4].copy_from_slice(&self.id.to_le_bytes());
        out[4..12].copy_from_slice(&self.len.to_le_bytes());
        let bit = |set, bit| if set { bit } else { 0 };
        out[12] =
            bit(self.last_use, LAST_USE) | bit(self.names, NAMES) | bit(self.rest == Remainder::InRing, REST_IN_RING);
        out
    }

    /// `None` if it has unknown flags.
    pub(super) fn decode(bytes: &[u8; NOTE_LEN]) -> Option<Self> {
        let bits = bytes[12];
        let known = bits & !(LAST_USE | NAMES | REST_IN_RING) == 0;
        known.then(|| Self {
            id: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            len: u64::from_le_bytes(bytes[4..12].try_into().expect("8 bytes")),
            last_use: bits & LAST_USE != 0,
            names: bits & NAMES != 0,
            rest: if bits & REST_IN_RING != 0 { Remainder::InRing } else { Remainder::InRegion },
        })
    }
}

/// A region of this side.
#[derive(Debug)]
struct OwnRegion {
    id: u32,
    memory: Arc<RegionMemory>,
    /// To be sent to a peer that does not know the region yet.
    fd: Option<OwnedFd>,
    /// Counts the region while it is kept for later messages. `None`: it is used for one message only.
    again: Option<KeptBytes>,
}

/// The regions of this side that are used again, for the receiving thread when the peer hands a message back.
#[derive(Debug, Default)]
pub(super) struct OwnRegions(InnerMutex<HashMap<u32, Weak<RegionMemory>>>);

impl OwnRegions {
    /// Pins the region in which the peer hands back a message: `len` bytes from `offset`. Checks that the peer has the
    /// region.
    pub(super) fn pin(&self, id: u32, offset: u64, len: u64) -> Result<Pin, LinkError> {
        let memory = self.0.lock().get(&id).and_then(Weak::upgrade);
        let Some(memory) = memory.filter(|memory| !memory.head().is_free()) else {
            return Err(LinkError::Broken("the peer hands back a region that it does not have".into()));
        };
        let end = offset.checked_add(len);
        if offset < REGION_HEAD as u64 || end.is_none_or(|end| end > memory.mapping().len() as u64) {
            return Err(LinkError::Broken("the peer hands back more of a region than there is".into()));
        }
        Ok(Pin::new(memory))
    }
}

/// A region for a message whose sender fills it before it has the turn.
#[derive(Debug)]
pub(super) enum Wanted {
    /// One that does not exist yet.
    New(New),
    /// One that is used again. The pin keeps it for this message.
    Again(u32, Pin),
}

/// A region that does not exist yet.
#[derive(Debug)]
pub(super) struct New {
    size: usize,
    /// As in [`OwnRegion`].
    again: Option<KeptBytes>,
}

/// A region with a payload of so many bytes, of which the peer has not been told.
#[derive(Debug)]
pub(super) struct Filled(Where, usize);

#[derive(Debug)]
enum Where {
    New { memory: Arc<RegionMemory>, fd: OwnedFd, again: Option<KeptBytes> },
    Again(u32, Pin),
}

impl Filled {
    /// Copies a payload of `len` bytes into a region, which is made if need be. Takes about a millisecond for each megabyte of a
    /// new region.
    pub(super) fn new(wanted: Wanted, pieces: &[&[u8]], len: usize) -> io::Result<Self> {
        let place = match wanted {
            Wanted::New(New { size, again }) => {
                let (mapping, fd) = Mapping::create(NAME, size, true)?;
                write(&mapping, pieces);
                Where::New { memory: RegionMemory::new(mapping), fd, again }
            }
            Wanted::Again(id, pin) => {
                write(pin.mapping(), pieces);
                Where::Again(id, pin)
            }
        };
        Ok(Self(place, len))
    }

    /// Whether the peer does not know the region.
    pub(super) fn is_new(&self) -> bool {
        matches!(self.0, Where::New { .. })
    }
}

/// Copies a payload into a region.
fn write(mapping: &Mapping, pieces: &[&[u8]]) {
    let mut at = REGION_HEAD;
    for piece in pieces {
        mapping.write(at, piece);
        at += piece.len();
    }
}

/// The sender's regions.
#[derive(Debug)]
pub(super) struct SentRegions {
    account: Arc<Account>,
    own: Arc<OwnRegions>,
    kept: Vec<OwnRegion>,
    kept_bytes: usize,
    next: u32,
    /// Announced regions that the reader has not come to yet: where in the ring their note ends, and how many of their
    /// bytes this side cannot use again.
    under_way: VecDeque<(u64, usize)>,
}

/// Which region a message is put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegionSpot {
    at: usize,
    fresh: bool,
}

impl SentRegions {
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self { account, own: Arc::default(), kept: Vec::new(), kept_bytes: 0, next: 0, under_way: VecDeque::new() }
    }

    /// The regions that are used again.
    pub(super) fn own(&self) -> Arc<OwnRegions> {
        Arc::clone(&self.own)
    }

    /// Whether the next payload of `len` bytes must wait for the reader, who has consumed the ring up to `consumed`.
    pub(super) fn must_wait(&mut self, len: usize, consumed: u64) -> bool {
        while self.under_way.front().is_some_and(|(position, _)| *position <= consumed) {
            self.under_way.pop_front();
        }
        if self.under_way.is_empty() || self.free(len + REGION_HEAD).is_some() {
            return false;
        }
        let bytes: usize = self.under_way.iter().map(|(_, bytes)| bytes).sum();
        self.under_way.len() >= MOST_UNDER_WAY || (bytes > 0 && bytes + len > KEPT_BYTES)
    }

    /// The smallest region that fits and is free: a short message must not occupy the only long region.
    fn free(&self, need: usize) -> Option<usize> {
        let fits = |region: &OwnRegion| region.memory.mapping().len() >= need && region.memory.is_free();
        let fitting = self.kept.iter().enumerate().filter(|(_, region)| fits(region));
        fitting.min_by_key(|(_, region)| region.memory.mapping().len()).map(|(at, _)| at)
    }

    /// Finds or makes a region for a payload of `len` bytes. The caller has to [announce](SentRegions::announce) and
    /// [fill](SentRegions::fill) it, and to [report](SentRegions::sent) when its note is in the ring.
    pub(super) fn place(&mut self, len: usize) -> io::Result<RegionSpot> {
        let need = len + REGION_HEAD;
        if let Some(at) = self.free(need) {
            return Ok(RegionSpot { at, fresh: self.kept[at].fd.is_some() });
        }
        let wanted = self.wanted(len);
        let (mapping, fd) = Mapping::create(NAME, wanted.size, true)?;
        let id = self.fresh_id();
        Ok(self.add(id, RegionMemory::new(mapping), Some(fd), wanted.again))
    }

    /// The new region that a payload of `len` bytes gets.
    fn wanted(&self, len: usize) -> New {
        let need = len + REGION_HEAD;
        // A payload of 2^n bytes needs a page more for the head, not twice the memory.
        let beside = (len.next_power_of_two() + REGION_HEAD).next_multiple_of(PAGE);
        let mut size = need.next_power_of_two().min(beside).max(SMALLEST);
        // A server has many clients, and each may have asked for one long answer only: so all regions count together.
        let may_keep = self.kept_bytes + size <= KEPT_BYTES;
        let again = may_keep.then(|| KeptBytes::of(&self.account, size)).flatten();
        if again.is_none() {
            // The size need not suit later messages.
            size = need.next_multiple_of(PAGE);
        }
        New { size, again }
    }

    fn add(&mut self, id: u32, memory: Arc<RegionMemory>, fd: Option<OwnedFd>, again: Option<KeptBytes>) -> RegionSpot {
        if again.is_some() {
            self.kept_bytes += memory.mapping().len();
            self.own.0.lock().insert(id, Arc::downgrade(&memory));
        }
        self.kept.push(OwnRegion { id, memory, fd, again });
        RegionSpot { at: self.kept.len() - 1, fresh: true }
    }

    /// The region that the next payload of `len` bytes gets, unless it has to wait. The reader has consumed the ring up to
    /// `consumed`.
    pub(super) fn wanted_ahead(&mut self, len: usize, consumed: u64) -> Option<Wanted> {
        if self.must_wait(len, consumed) {
            return None;
        }
        Some(match self.free(len + REGION_HEAD) {
            // One that could not be announced is left to a sender who has the turn.
            Some(at) if self.kept[at].fd.is_some() => return None,
            Some(at) => Wanted::Again(self.kept[at].id, Pin::new(Arc::clone(&self.kept[at].memory))),
            None => Wanted::New(self.wanted(len)),
        })
    }

    /// Tells the peer of a filled region if it is new, and takes it over. `None` if there is no room in the socket now. What is
    /// returned is as for [`fill`](SentRegions::fill).
    pub(super) fn adopt(
        &mut self,
        filled: &mut Option<Filled>,
        socket: &PeerSocket,
    ) -> Result<Option<(RegionSpot, Note)>, LinkError> {
        let id = self.fresh_id();
        if let Some(Filled(Where::New { memory, fd, .. }, _)) = filled
            && !announce(socket, id, memory.mapping().len() as u64, fd)?
        {
            return Ok(None);
        }
        let Some(Filled(place, len)) = filled.take() else { return Ok(None) };
        let (place, _until_it_is_taken) = match place {
            Where::New { memory, again, .. } => (Some(self.add(id, memory, None, again)), None),
            Where::Again(id, pin) => {
                // It is missing only after the end of the connection.
                let at = self.kept.iter().position(|region| region.id == id);
                (at.map(|at| RegionSpot { at, fresh: false }), Some(pin))
            }
        };
        Ok(place.map(|place| (place, self.take(place, len))))
    }

    /// Tells the peer of a region that it does not know yet. `false` if there is no room in the socket now.
    pub(super) fn announce(&mut self, place: RegionSpot, socket: &PeerSocket) -> Result<bool, LinkError> {
        let region = &mut self.kept[place.at];
        let Some(fd) = &region.fd else { return Ok(true) };
        if !announce(socket, region.id, region.memory.mapping().len() as u64, fd)? {
            return Ok(false);
        }
        region.fd = None;
        Ok(true)
    }

    /// Copies a payload of `len` bytes, in pieces, into its region. Returns the note for the ring.
    pub(super) fn fill(&self, place: RegionSpot, pieces: &[&[u8]], len: usize) -> Note {
        write(self.kept[place.at].memory.mapping(), pieces);
        self.take(place, len)
    }

    /// A region has a payload of `len` bytes, and is not free from now on. Returns its note.
    fn take(&self, place: RegionSpot, len: usize) -> Note {
        let region = &self.kept[place.at];
        region.memory.head().take();
        Note {
            id: region.id,
            len: len as u64,
            last_use: region.again.is_none(),
            rest: Remainder::InRegion,
            names: false,
        }
    }

    /// Takes out all regions, when no more messages are sent.
    pub(super) fn forget(&mut self) -> impl Drop + use<> {
        self.kept_bytes = 0;
        std::mem::take(&mut self.kept)
    }

    /// A number that no living region has. Numbers are used up one by one, but a kept region keeps its own.
    fn fresh_id(&mut self) -> u32 {
        loop {
            let id = self.next;
            self.next = id.wrapping_add(1);
            if self.kept.iter().all(|region| region.id != id) {
                return id;
            }
        }
    }

    /// The region's note is in the ring, which was written up to `position`.
    pub(super) fn sent(&mut self, place: RegionSpot, position: u64) {
        let region = &self.kept[place.at];
        let is_last = region.again.is_none();
        let lent = if is_last { region.memory.mapping().len() } else { 0 };
        if is_last {
            self.kept.swap_remove(place.at);
        }
        if place.fresh {
            self.under_way.push_back((position, lent));
        }
    }
}

/// The receiver's view of the peer's regions.
#[derive(Debug)]
pub(super) struct Mapped {
    regions: HashMap<u32, Arc<Pages>>,
    bytes: u64,
    /// The region of which a message is being made present, part by part.
    filling: Option<u32>,
    account: Arc<Account>,
    /// The number of the connection.
    link: u64,
}

impl Mapped {
    pub(super) fn new(account: Arc<Account>, link: u64) -> Self {
        Self { regions: HashMap::new(), bytes: 0, filling: None, account, link }
    }

    /// Forgets all regions.
    pub(super) fn clear(&mut self) {
        self.regions.clear();
        (self.bytes, self.filling) = (0, None);
    }

    /// The payload that a note names. `None` if that takes more time: call again. `limit` is the longest message that
    /// this side accepts.
    pub(super) fn open(
        &mut self,
        note: Note,
        limit: u64,
        inbox: &mut Inbox,
        socket: &PeerSocket,
    ) -> Result<Option<Lease>, LinkError> {
        if note.len > limit {
            return Err(LinkError::Broken(format!(
                "the peer sent a message of {} bytes, the limit is {limit}",
                note.len
            )));
        }
        // A peer that changes its note in between does not get more regions filled.
        if let Some(other) = self.filling.take().filter(|id| *id != note.id)
            && let Some(pages) = self.regions.get(&other)
        {
            pages.let_go();
        }
        if !self.regions.contains_key(&note.id) {
            let pages = self.map(&inbox.region(socket, note.id)?, limit)?;
            self.regions.insert(note.id, pages);
        }
        let pages = &self.regions[&note.id];
        if note.len > (pages.mapping().len() - REGION_HEAD) as u64 {
            return Err(LinkError::Broken("the peer's message is longer than the memory it lies in".into()));
        }
        let needed = REGION_HEAD + note.len as usize;
        if !pages.ask_for(needed, PART).map_err(|error| LinkError::no_memory(needed, error))? {
            self.filling = Some(note.id);
            return Ok(None);
        }
        let pages = Arc::clone(pages);
        if note.last_use && self.regions.remove(&note.id).is_some() {
            self.bytes -= pages.mapping().len() as u64;
            pages.forget();
        }
        Ok(Some(Lease::region(pages.take(), note.len as usize)))
    }

    fn map(&mut self, announced: &Announced, limit: u64) -> Result<Arc<Pages>, LinkError> {
        let size = usize::try_from(announced.size).unwrap_or(usize::MAX);
        // A peer may keep as much as this library keeps, and one message more. Anything beyond is an attack on this
        // side's memory.
        let most = limit.max(SMALLEST as u64).saturating_mul(2).saturating_add(KEPT_BYTES as u64 + 4096);
        if size <= REGION_HEAD || self.bytes.saturating_add(announced.size) > most {
            return Err(LinkError::Broken("the peer sent more shared memory than it may".into()));
        }
        let mapping = Mapping::open(announced.fd.as_fd(), size).map_err(|error| LinkError::no_memory(size, error))?;
        self.bytes += size as u64;
        Ok(Pages::new(mapping, self.link, announced.id, Arc::clone(&self.account)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::budget::Budget;

    fn regions_of(budget: &Arc<Budget>) -> SentRegions {
        SentRegions::new(Account::of(budget, 1 << 20))
    }

    #[test]
    fn all_connections_together_keep_a_quarter_of_the_budget() {
        let budget = Budget::new(1 << 20);
        let mut connections: Vec<_> = (0..4).map(|_| regions_of(&budget)).collect();
        for regions in &mut connections {
            put(regions, 100_000, 1);
        }
        let kept = |connections: &[SentRegions]| connections.iter().map(|one| one.kept.len()).collect::<Vec<_>>();
        assert_eq!(kept(&connections), [1, 1, 0, 0], "two regions of 128 KiB");
        drop(connections.remove(0));
        put(&mut connections[2], 100_000, 2);
        assert_eq!(kept(&connections), [1, 0, 1], "there is room for one again");
    }

    #[test]
    fn a_filled_region_that_is_not_used_is_kept_nowhere() {
        let budget = Budget::new(usize::MAX);
        let mut regions = regions_of(&budget);
        let wanted = regions.wanted_ahead(AHEAD, 0).expect("a new one");
        let filled = Filled::new(wanted, &[&vec![7; AHEAD]], AHEAD).expect("memory");
        assert!(filled.is_new());
        drop(filled);
        assert!(regions.kept.is_empty() && regions.kept_bytes == 0);
        put(&mut regions, AHEAD, 1);
        assert!(matches!(regions.wanted_ahead(AHEAD, 1), Some(Wanted::New(_))), "the first one is at the peer");
    }

    #[test]
    fn a_region_that_is_filled_again_is_one_messages_until_that_is_given_up() {
        let mut regions = regions_of(&Budget::new(usize::MAX));
        let first = put(&mut regions, AHEAD, 1);
        regions.kept[0].memory.head().give_back();
        let wanted = regions.wanted_ahead(AHEAD, 1).expect("the first one");
        assert!(matches!(&wanted, Wanted::Again(id, _) if *id == first));
        let mut filled = Some(Filled::new(wanted, &[&vec![7; AHEAD]], AHEAD).expect("memory"));
        // The peer says that it is free once more.
        regions.kept[0].memory.head().give_back();
        assert_ne!(put(&mut regions, AHEAD, 2), first);
        let (end, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let (place, note) = regions.adopt(&mut filled, &PeerSocket::new(end.into())).expect("open").expect("room");
        regions.sent(place, 3);
        assert_eq!((note.id, note.len, place.fresh), (first, AHEAD as u64, false));
        assert!(!regions.kept[0].memory.is_free(), "at the peer");
        regions.kept[0].memory.head().give_back();
        drop(regions.wanted_ahead(AHEAD, 3));
        assert!(regions.kept[0].memory.is_free(), "given up");
    }

    #[test]
    fn a_note_comes_back() {
        let long = Note { id: 7, len: 1 << 40, last_use: true, names: true, rest: Remainder::InRegion };
        let short = Note { id: u32::MAX, len: 0, last_use: false, names: false, rest: Remainder::InRegion };
        for note in [long, short, Note::without_region()] {
            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
    }

    #[test]
    fn a_note_with_unknown_flags_is_refused() {
        for bit in 3..8 {
            let mut bytes = Note::without_region().encode();
            bytes[12] |= 1 << bit;
            assert_eq!(Note::decode(&bytes), None, "bit {bit}");
        }
    }

    fn put(regions: &mut SentRegions, len: usize, position: u64) -> u32 {
        let place = regions.place(len).expect("memory");
        // As if it had been announced.
        regions.kept[place.at].fd = None;
        let note = regions.fill(place, &[&vec![1; len]], len);
        regions.sent(place, position);
        note.id
    }

    #[test]
    fn a_round_length_takes_little_more_than_itself() {
        let mut regions = regions_of(&Budget::new(usize::MAX));
        let mut size_for = |len: usize| {
            let place = regions.place(len).expect("memory");
            let size = regions.kept[place.at].memory.mapping().len();
            regions.kept.clear();
            regions.kept_bytes = 0;
            size
        };
        assert_eq!(size_for(16 << 20), (16 << 20) + PAGE);
        assert_eq!(size_for((16 << 20) - REGION_HEAD), 16 << 20);
        assert_eq!(size_for((16 << 20) + 1), 32 << 20);
        assert_eq!(size_for(1), SMALLEST);
    }

    #[test]
    fn numbers_that_wrap_pass_over_kept_regions() {
        let mut regions = regions_of(&Budget::new(usize::MAX));
        assert_eq!([put(&mut regions, 100_000, 1), put(&mut regions, 100_000, 2)], [0, 1]);
        regions.next = u32::MAX;
        assert_eq!([put(&mut regions, 100_000, 3), put(&mut regions, 100_000, 4)], [u32::MAX, 2]);
    }

    #[test]
    fn a_region_that_could_not_be_announced_is_used_by_the_next_message() {
        let mut regions = regions_of(&Budget::new(usize::MAX));
        let first = regions.place(100_000).expect("memory");
        assert_eq!(regions.place(90_000).expect("memory"), first);
    }

    #[test]
    fn a_sender_is_not_far_ahead_of_its_reader() {
        let mut regions = regions_of(&Budget::new(usize::MAX));
        for position in 1..=MOST_UNDER_WAY as u64 {
            assert!(!regions.must_wait(70_000, 0));
            put(&mut regions, 70_000, position);
        }
        assert!(regions.must_wait(70_000, 0), "too many");
        assert!(!regions.must_wait(70_000, 1), "one was taken");
        assert!(!regions.must_wait(40 << 20, u64::MAX), "the first may be of any length");
        put(&mut regions, 40 << 20, 100);
        assert!(regions.must_wait(40 << 20, 50), "too long together");
    }
}

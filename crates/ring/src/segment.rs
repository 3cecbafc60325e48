//! The memory that one connection shares: two sides, two lanes.
//!
//! ```text
//! offset 0      side of the client      128 bytes
//!        128    side of the server      128
//!        256    counters, client to server   384
//!        640    counters, server to client   384
//!        1024   loans of the client's buffers that the server has given back   32 × u32
//!        1152   loans of the server's buffers that the client has given back   32 × u32
//!        4096   ring, client to server  `ring` bytes
//!        4096 + ring  ring, server to client
//! ```

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::lane::{Consumer, Counters, LaneMemory, Producer};
use crate::mapping::Mapping;
use crate::side::Side;
use crate::sync::{AtomicU32, Ordering};

/// Which end of a connection this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that connected and made the segment.
    Client,
    /// The end that accepted.
    Server,
}

/// Bytes of a cache line.
const LINE: usize = 64;
const SIDES: usize = 0;
const COUNTERS: usize = 256;
const LOANS: usize = 1024;
const RINGS: usize = 4096;

/// The shared memory of one connection, mapped.
#[derive(Debug, Clone)]
pub struct Segment {
    mapping: Arc<Mapping>,
    ring: usize,
    role: Role,
}

impl Segment {
    /// Smallest and largest ring, in bytes.
    pub const RING_SIZES: std::ops::RangeInclusive<usize> = 4096..=(1 << 24);

    /// Whether `ring` bytes can be the size of one ring.
    #[must_use]
    pub fn is_ring_size(ring: usize) -> bool {
        ring.is_power_of_two() && Self::RING_SIZES.contains(&ring)
    }

    /// Bytes of each ring of this segment.
    #[must_use]
    pub fn ring(&self) -> usize {
        self.ring
    }

    /// Bytes of shared memory for a connection with rings of `ring` bytes. This is address space: a page takes memory
    /// once it is touched.
    #[must_use]
    pub fn size(ring: usize) -> usize {
        RINGS + 2 * ring
    }

    /// Creates a segment, as the connecting side does. The descriptor is for the peer.
    ///
    /// # Errors
    /// The system's error.
    ///
    /// # Panics
    /// If `ring` is not a power of two in [`Segment::RING_SIZES`].
    pub fn create(ring: usize) -> io::Result<(Self, OwnedFd)> {
        assert!(Self::is_ring_size(ring), "the ring's size must be a power of two");
        let (mapping, fd) = Mapping::create("nearcall-ring", Self::size(ring), false)?;
        Ok((Self { mapping: Arc::new(mapping), ring, role: Role::Client }, fd))
    }

    /// Maps the segment that a client sent, as the accepting side does.
    ///
    /// # Errors
    /// `InvalidData` if the descriptor is not sealed shared memory of the right size.
    pub fn open(fd: BorrowedFd<'_>, ring: usize) -> io::Result<Self> {
        if !Self::is_ring_size(ring) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer asked for an impossible ring size"));
        }
        let mapping = Mapping::open(fd, Self::size(ring))?;
        Ok(Self { mapping: Arc::new(mapping), ring, role: Role::Server })
    }

    /// The same memory seen from the other end. For both ends in one process.
    #[must_use]
    pub fn other_end(&self) -> Self {
        let role = if self.role == Role::Client { Role::Server } else { Role::Client };
        Self { mapping: Arc::clone(&self.mapping), ring: self.ring, role }
    }

    /// The side of this process.
    #[must_use]
    pub fn own_side(&self) -> &Side {
        self.side(self.role == Role::Server)
    }

    /// The side of the peer.
    #[must_use]
    pub fn peer_side(&self) -> &Side {
        self.side(self.role == Role::Client)
    }

    fn side(&self, second: bool) -> &Side {
        let offset = SIDES + usize::from(second) * size_of::<Side>();
        let side = self.mapping.place::<Side>(offset);
        // SAFETY: the offset is inside the mapping and aligned to 128 (the mapping is page-aligned); a Side is only
        // atomics, for which every bit pattern is valid and concurrent change is expected.
        unsafe { &*side }
    }

    /// How many buffers each side can show the other at a time. For each, one word counts loans; a buffer's word is its
    /// number modulo this.
    pub const BUFFERS: usize = 32;

    /// Gives back `loans` loans of the peer's buffer with this number.
    pub fn give_back(&self, buffer: u32, loans: u32) {
        // Release: this process has read the buffer before the peer writes to it again.
        self.loans(self.role == Role::Client, buffer).fetch_add(loans, Ordering::Release);
    }

    /// How many loans of this side's buffer with this number the peer has ever given back. Wraps around.
    #[must_use]
    pub fn given_back(&self, buffer: u32) -> u32 {
        // Acquire: pairs with the release in `give_back`.
        self.loans(self.role == Role::Server, buffer).load(Ordering::Acquire)
    }

    fn loans(&self, of_server: bool, buffer: u32) -> &AtomicU32 {
        let buffer = buffer as usize % Self::BUFFERS;
        let offset = LOANS + (usize::from(of_server) * Self::BUFFERS + buffer) * size_of::<AtomicU32>();
        let word = self.mapping.place::<AtomicU32>(offset);
        // SAFETY: the word is inside the mapping and aligned; it is an atomic, which may change at any time.
        unsafe { &*word }
    }

    /// This side's ends of the two lanes. Call once per side: a lane has one producer and one consumer.
    #[must_use]
    pub fn lanes(&self) -> (Producer<MappedLane>, Consumer<MappedLane>) {
        let outgoing = usize::from(self.role == Role::Server);
        (Producer::new(self.lane(outgoing)), Consumer::new(self.lane(1 - outgoing)))
    }

    /// The lane of which [`Segment::lanes`] gives this side the consumer. Only for looking at it.
    #[must_use]
    pub fn incoming(&self) -> MappedLane {
        self.lane(usize::from(self.role == Role::Client))
    }

    fn lane(&self, index: usize) -> MappedLane {
        MappedLane {
            mapping: Arc::clone(&self.mapping),
            counters: COUNTERS + index * size_of::<Counters>(),
            ring: RINGS + index * self.ring,
            capacity: self.ring,
        }
    }
}

const _: () = assert!(COUNTERS + 2 * size_of::<Counters>() <= LOANS);
const _: () = assert!(LOANS + 2 * Segment::BUFFERS * size_of::<AtomicU32>() <= RINGS);
const _: () = assert!(COUNTERS + 2 * size_of::<Counters>() <= RINGS && SIDES + 2 * size_of::<Side>() <= COUNTERS);

/// One lane inside a [`Segment`].
#[derive(Debug)]
pub struct MappedLane {
    mapping: Arc<Mapping>,
    counters: usize,
    ring: usize,
    capacity: usize,
}

impl LaneMemory for MappedLane {
    #[inline]
    fn counters(&self) -> &Counters {
        let counters = self.mapping.place::<Counters>(self.counters);
        // SAFETY: inside the mapping and aligned, by construction of `Segment::lane`; only atomics.
        unsafe { &*counters }
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.capacity, "write past the ring");
        self.mapping.write(self.ring + offset, bytes);
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.capacity, "read past the ring");
        self.mapping.read(self.ring + offset, into);
    }

    #[inline]
    fn expect(&self, offset: usize) {
        for line in [offset, (offset + LINE) & (self.capacity - 1)] {
            self.mapping.prefetch(self.ring + line);
        }
    }

    #[inline]
    fn read_prefix(&self, offset: usize) -> u32 {
        assert!(offset < self.capacity, "read past the ring");
        self.mapping.read_u32(self.ring + offset)
    }
}

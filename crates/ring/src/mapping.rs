//! Anonymous shared memory: created sealed, passed by descriptor, mapped whole.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nearcall_platform::{freeing, memory};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::sync::{AtomicU32, Ordering};

/// A shared memory file of fixed size, mapped into this process until dropped.
///
/// It has no name anywhere, so nothing can be left behind: the kernel frees it with its last descriptor and mapping.
/// Its size is sealed, so a peer cannot shrink it while this process reads it (which would be a `SIGBUS`).
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: a Mapping is an address and a length; all access to the bytes goes through raw copies and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; nothing in it depends on the thread.
unsafe impl Sync for Mapping {}

/// The seals that a descriptor must have before it is mapped.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// These seals, and one against further writable mappings: the creator goes on writing, and no other process can.
const SHOWN_SEALS: SealFlags = SEALS.union(SealFlags::FUTURE_WRITE);

/// The least size of a page. Where pages are larger, the system refuses a start in the middle of one, which does no
/// harm.
const PAGE: usize = 4096;

/// From this size on, the system is asked first whether it has that much memory, which takes some microseconds.
const WORTH_ASKING: usize = 64 << 20;

/// Bytes that are allocated, or given back, at once. Threads that map memory wait while another one gives some back, and a
/// signal undoes what is being allocated.
const AT_ONCE: usize = 256 << 10;

/// The file system of ordinary shared memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;

impl Mapping {
    /// Creates `len` bytes of zeroed shared memory and maps them. The descriptor is for the peer. The memory is allocated now,
    /// or when it is first touched.
    ///
    /// # Errors
    /// The system's error: mostly that there are no descriptors or memory left.
    pub fn create(name: &str, len: usize, now: bool) -> io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        if now {
            allocate(fd.as_fd(), len)?;
        }
        Ok((Self::map(fd.as_fd(), len)?, fd))
    }

    /// Maps shared memory received from a peer, after checking that its size is `len` and sealed.
    ///
    /// # Errors
    /// `InvalidData` if the descriptor is not what a peer may send; otherwise the system's error.
    pub fn open(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::check(fd, len as u64, SEALS)?;
        Self::map(fd, len)
    }

    /// Creates `len` bytes of shared memory that can be shown to peers and that only this mapping can write to. All of
    /// it is allocated: a peer that reads it needs no memory of its own. The descriptor is for peers.
    ///
    /// # Errors
    /// The system's error: no descriptors or memory left, or `InvalidInput` before Linux 5.1. `OutOfMemory` if the
    /// system has less memory left.
    pub fn create_shown(name: &str, len: usize) -> io::Result<(Self, OwnedFd)> {
        // To provide the pages one by one, the system would kill other programs, or this one, rather than refuse.
        if len >= WORTH_ASKING && memory::available().is_some_and(|left| len as u64 > left) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        allocate(fd.as_fd(), len)?;
        let mapping = Self::map(fd.as_fd(), len)?;
        // The mapping comes first: it is the last writable one.
        rustix::fs::fcntl_add_seals(&fd, SHOWN_SEALS)?;
        Ok((mapping, fd))
    }

    /// Checks that a descriptor from a peer is shared memory of `len` bytes that only the peer can write to, and that
    /// the peer can neither resize it nor punch holes into it.
    ///
    /// # Errors
    /// As [`Mapping::open`].
    pub fn check_shown(fd: BorrowedFd<'_>, len: u64) -> io::Result<()> {
        Self::check(fd, len, SHOWN_SEALS)
    }

    /// Maps a part of memory that a peer shows, read-only: writing to it would end the process. `fd` was
    /// [checked](Mapping::check_shown), and `from` is a multiple of the page size.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_shown(fd: BorrowedFd<'_>, from: u64, len: usize) -> io::Result<Self> {
        Self::map_part(fd, from, len, ProtFlags::READ, MapFlags::SHARED)
    }

    fn check(fd: BorrowedFd<'_>, len: u64, expected: SealFlags) -> io::Result<()> {
        let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
        match rustix::fs::fcntl_get_seals(fd) {
            Ok(seals) if seals.contains(expected) => {}
            Ok(seals) if seals.contains(SEALS) => return refuse("the peer's buffer is not sealed against writing"),
            Ok(_) => return refuse("the peer's shared memory is not sealed against resizing"),
            Err(_) => return refuse("the peer sent a descriptor that is not shared memory"),
        }
        // Huge pages can be sealed, too, but may be missing when they are touched.
        if rustix::fs::fstatfs(fd)?.f_type as u64 != TMPFS_MAGIC {
            return refuse("the peer's shared memory is not of the ordinary kind");
        }
        if rustix::fs::fstat(fd)?.st_size as u64 != len {
            return refuse("the peer's shared memory has not the size it announced");
        }
        Ok(())
    }

    fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // Not MAP_POPULATE: it takes a millisecond for each megabyte, and no other thread of the process can map memory, or
        // give it back, before it is done.
        Self::map_part(fd, 0, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    }

    fn map_part(fd: BorrowedFd<'_>, from: u64, len: usize, access: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone else uses.
        let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, fd, from) };
        let address = address.map_err(|error| match error {
            // Sealed against writing, or opened for reading only.
            Errno::PERM | Errno::ACCESS => {
                io::Error::new(io::ErrorKind::InvalidData, "the peer's shared memory cannot be written to")
            }
            error => error.into(),
        })?;
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Self { address, len })
    }

    /// Asks the system for the pages of a part all at once, which is cheaper than one by one at the first access. An
    /// old system cannot do this, and provides them one by one.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub fn populate(&self, from: usize, to: usize) -> io::Result<()> {
        let (from, to) = (from.min(self.len) & !(PAGE - 1), to.min(self.len));
        if from < to {
            let start = self.address.as_ptr().wrapping_add(from);
            // SAFETY: the part lies in the mapping; making pages present changes nothing that can be observed.
            match unsafe { rustix::mm::madvise(start.cast(), to - from, Advice::LinuxPopulateRead) } {
                Ok(()) | Err(Errno::INVAL) => {}
                // An access would fail in the same way, with a signal.
                Err(Errno::FAULT) => return Err(Errno::NOMEM.into()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns all pages from `from` on to the system: they become zero in every mapping. Does nothing if the system
    /// refuses.
    pub fn discard(&self, from: usize) {
        let from = from.next_multiple_of(PAGE);
        if from < self.len {
            let start = self.address.as_ptr().wrapping_add(from);
            // SAFETY: the part lies in the mapping, of which there are no references: it may change at any time anyway.
            let _ = unsafe { rustix::mm::madvise(start.cast(), self.len - from, Advice::LinuxRemove) };
        }
    }

    /// Start of the mapping, page-aligned. Valid while `self` lives.
    #[must_use]
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Length of the mapping in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of a `T` at `offset`, which must be inside and aligned.
    pub(crate) fn place<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset.is_multiple_of(align_of::<T>()) && offset + size_of::<T>() <= self.len);
        self.address.as_ptr().wrapping_add(offset).cast()
    }

    /// Fetches the cache line at `offset` ahead of a read, where the processor can be told to. Does not wait.
    ///
    /// # Panics
    /// If the offset is not inside the mapping.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        assert!(offset < self.len, "prefetch past the mapping");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which reads and changes nothing that a program can see, and never faults.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.place::<i8>(offset));
        }
    }

    /// Copies `bytes` into the shared memory at `offset`.
    ///
    /// # Panics
    /// If the bytes do not fit.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "write past the mapping");
        let to = self.address.as_ptr().wrapping_add(offset);
        // SAFETY: the range was just checked to lie in the mapping, and a peer's concurrent access can only garble bytes,
        // which no reference in this process points at.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes out of the shared memory at `offset`, once.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: writable bytes may be seen as uninitialized ones if they are initialized afterwards, and `read_new`
        // does that.
        let into = unsafe { &mut *(std::ptr::from_mut(into) as *mut [MaybeUninit<u8>]) };
        self.read_new(offset, into);
    }

    /// Copies bytes out of the shared memory into uninitialized memory. All of it is initialized afterwards.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    #[inline]
    pub fn read_new(&self, offset: usize, into: &mut [MaybeUninit<u8>]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.len), "read past the mapping");
        let from = self.address.as_ptr().wrapping_add(offset);
        // SAFETY: the range was just checked; a peer that writes at the same time garbles only its own message.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().cast(), into.len()) };
    }

    /// Reads a little-endian number from the shared memory at `offset`, in one load.
    ///
    /// # Panics
    /// If the number is not inside the mapping or not aligned.
    #[inline]
    pub fn read_u32(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset < self.len && self.len - offset >= 4, "read past the mapping");
        let word = self.place(offset);
        // SAFETY: inside the mapping and aligned (a mapping starts at a page), and valid as long as `self`; the peer may
        // write at the same time, which an atomic allows.
        let word = unsafe { AtomicU32::from_ptr(word) };
        // Relaxed: the ring's counters order the load.
        u32::from_le(word.load(Ordering::Relaxed))
    }
}

/// Allocates all of a memory file, a part at a time.
fn allocate(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    for from in (0..len).step_by(AT_ONCE) {
        // A signal undoes the part. Its handler has run before the next attempt.
        retry_on_intr(|| {
            rustix::fs::fallocate(fd, FallocateFlags::empty(), from as u64, AT_ONCE.min(len - from) as u64)
        })?;
    }
    Ok(())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        freeing::free(Unused { address: self.address, len: self.len }, self.len);
    }
}

/// A mapping whose owner is gone.
struct Unused {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: it may be unmapped on any thread.
unsafe impl Send for Unused {}

impl Drop for Unused {
    fn drop(&mut self) {
        // From the end, so that one mapping stays one.
        for from in (0..self.len).step_by(AT_ONCE).rev() {
            let start = self.address.as_ptr().wrapping_add(from);
            // SAFETY: a part of what mmap gave, and no reference into the mapping outlives its owner.
            let result = unsafe { rustix::mm::munmap(start.cast(), AT_ONCE.min(self.len - from)) };
            debug_assert!(result.is_ok(), "munmap: {result:?}");
        }
    }
}

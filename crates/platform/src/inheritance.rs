//! Connections without a name that this process uses, and that its children by fork shall not hold.
//!
//! A connection that has two ends and no name ends when one of them is closed. A child by fork has a copy of each
//! descriptor: as long as it lives, the peer does not learn that this process has died. Descriptors of other programs,
//! started by `exec`, are no such copies: they are closed there.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Once, OnceLock};

use rustix::fs::fstat;

use crate::fork;
use crate::sync::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Descriptors in one piece of the list.
const AT_ONCE: usize = 32;
/// Nothing was entered.
const FREE: RawFd = -1;
/// Somebody enters something just now.
const CLAIMED: RawFd = -2;

/// A list that only grows: a child by fork reads it whatever other threads of its parent were doing.
struct Entries {
    entries: [Entry; AT_ONCE],
    more: OnceLock<Box<Self>>,
}

/// A descriptor, and the file that it stood for: its number may be another one's by now.
struct Entry {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// Children shall not hold it.
    kept: AtomicBool,
}

/// What a descriptor stands for: device and inode.
type File = (u64, u64);

static ENTRIES: Entries = Entries::new();
static WATCH: Once = Once::new();

impl Entry {
    const fn new() -> Self {
        Self {
            fd: AtomicI32::new(FREE),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            kept: AtomicBool::new(false),
        }
    }

    /// The descriptor that was entered and what it stands for, unless its number is another one's by now.
    fn standing(&self) -> Option<(RawFd, File)> {
        // Acquire: after the Release of `try_enter`; the file is read after it.
        let fd = self.fd.load(Ordering::Acquire);
        let file = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        (fd >= 0 && file_of(fd) == Some(file)).then_some((fd, file))
    }

    /// Enters a descriptor, if there is nothing here that still stands.
    fn try_enter(&self, fd: RawFd, (device, inode): File) -> bool {
        // Relaxed: looked at again below.
        let before = self.fd.load(Ordering::Relaxed);
        if before == CLAIMED || self.standing().is_some() {
            return false;
        }
        // Acquire: what is written next is written after it.
        if self.fd.compare_exchange(before, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.kept.store(false, Ordering::Relaxed);
        // Release: who sees the number sees which file it stands for.
        self.fd.store(fd, Ordering::Release);
        true
    }
}

impl Entries {
    const fn new() -> Self {
        Self { entries: [const { Entry::new() }; AT_ONCE], more: OnceLock::new() }
    }

    fn enter(&self, fd: RawFd, file: File) {
        let mut entries = self;
        while !entries.entries.iter().any(|entry| entry.try_enter(fd, file)) {
            entries = entries.more.get_or_init(|| Box::new(Self::new()));
        }
    }

    fn all(&self) -> impl Iterator<Item = &Entry> {
        std::iter::successors(Some(self), |part| part.more.get().map(|more| &**more)).flat_map(|part| &part.entries)
    }

    /// Those that stand for a file.
    fn of(&self, file: File) -> impl Iterator<Item = &Entry> {
        self.all().filter(move |entry| entry.standing().is_some_and(|(_, found)| found == file))
    }
}

/// Notes that this process uses what the descriptor stands for, as long as that is open or a copy that is [kept from
/// children](keep_from_children).
/// `false` if it does so already.
#[must_use]
pub fn claim(fd: BorrowedFd<'_>) -> bool {
    let Some(file) = file_of(fd.as_raw_fd()) else { return true };
    if ENTRIES.of(file).next().is_some() {
        return false;
    }
    ENTRIES.enter(fd.as_raw_fd(), file);
    true
}

/// Children by fork will find that the descriptor stands for nothing, and so for all [claimed](claim) ones of the same
/// file. Nothing has to be done when it is closed.
pub fn keep_from_children(fd: BorrowedFd<'_>) {
    fork::in_children(&WATCH, leave_to_parent);
    if let Some(file) = file_of(fd.as_raw_fd()) {
        ENTRIES.enter(fd.as_raw_fd(), file);
        for entry in ENTRIES.of(file) {
            // Relaxed: a fork that comes at this very moment came before.
            entry.kept.store(true, Ordering::Relaxed);
        }
    }
}

/// `None` if it is not open.
fn file_of(fd: RawFd) -> Option<File> {
    // SAFETY: it is only asked what it stands for, and a number that is not open is an error.
    let found = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// In a child by fork: puts something that nobody else has in the place of each descriptor, so that the numbers stay taken
/// and whoever owns one may close it. Only what a signal handler may do is done here: other threads may have held any lock.
extern "C" fn leave_to_parent() {
    let mut stand_in = None;
    // Relaxed: the child has one thread here.
    for entry in ENTRIES.all().filter(|entry| entry.kept.load(Ordering::Relaxed)) {
        let Some((fd, _)) = entry.standing() else { continue };
        // SAFETY: no memory is touched.
        let other = *stand_in.get_or_insert_with(|| unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) });
        if other >= 0 {
            // SAFETY: no memory is touched; the number stays open, so that its owner finds something to close.
            unsafe { libc::dup3(other, fd, libc::O_CLOEXEC) };
        }
    }
    if let Some(other) = stand_in.filter(|other| *other >= 0) {
        // SAFETY: it was made above, and nobody else knows it.
        unsafe { libc::close(other) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn open_pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair")
    }

    #[test]
    fn entries_of_what_was_closed_are_used_again() {
        let entries = Entries::new();
        for _ in 0..10 * AT_ONCE {
            let (one, _other) = open_pair();
            entries.enter(one.as_raw_fd(), file_of(one.as_raw_fd()).expect("open"));
        }
        assert!(entries.more.get().is_none());
    }

    #[test]
    fn there_is_room_for_all_that_are_open() {
        let entries = Entries::new();
        let open: Vec<_> = (0..2 * AT_ONCE).map(|_| open_pair()).collect();
        for (one, _) in &open {
            entries.enter(one.as_raw_fd(), file_of(one.as_raw_fd()).expect("open"));
        }
        for (one, _) in &open {
            assert_eq!(entries.of(file_of(one.as_raw_fd()).expect("open")).count(), 1);
        }
    }

    #[test]
    fn a_copy_is_the_same_connection_and_the_other_end_is_not() {
        let (one, other) = open_pair();
        assert!(claim(one.as_fd()));
        assert!(claim(other.as_fd()));
        let copy = one.try_clone().expect("a copy");
        assert!(!claim(copy.as_fd()));
        keep_from_children(copy.as_fd());
        drop(one);
        assert!(!claim(copy.as_fd()));
    }
}

//! Connections without a name that this process uses, and that its forked children must not hold.
//!
//! A connection with two ends and no name ends when one end is closed. A forked child has a copy of each descriptor: as
//! long as it lives, the peer does not learn that this process has died. Programs started by `exec` hold no such
//! copies, because the descriptors are closed there.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Once, OnceLock};

use rustix::fs::fstat;

use crate::fork;
use crate::sync::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Entries in one piece of the list.
const AT_ONCE: usize = 32;
/// The entry was never used.
const FREE: RawFd = -1;
/// A thread is writing the entry.
const CLAIMED: RawFd = -2;

/// A list that only grows, so that a forked child can read it whatever other threads of its parent were doing.
struct Entries {
    entries: [Entry; AT_ONCE],
    more: OnceLock<Box<Self>>,
}

/// A descriptor, and its file when it was entered. The number may belong to another file by now.
struct Entry {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// Forked children must not hold the descriptor.
    kept: AtomicBool,
}

/// The identity of a file: device and inode.
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

    /// The descriptor that was entered and its file, unless the number belongs to another file by now.
    fn standing(&self) -> Option<(RawFd, File)> {
        // Acquire: pairs with the Release of `try_enter`; the file is read after it.
        let fd = self.fd.load(Ordering::Acquire);
        let file = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        (fd >= 0 && file_of(fd) == Some(file)).then_some((fd, file))
    }

    /// Enters a descriptor, unless the entry is in use.
    fn try_enter(&self, fd: RawFd, (device, inode): File) -> bool {
        // Relaxed: the exchange below checks it again.
        let before = self.fd.load(Ordering::Relaxed);
        if before == CLAIMED || self.standing().is_some() {
            return false;
        }
        // Acquire: the writes below stay behind it.
        if self.fd.compare_exchange(before, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.kept.store(false, Ordering::Relaxed);
        // Release: a thread that sees the number sees its file.
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

    /// The entries of this file.
    fn of(&self, file: File) -> impl Iterator<Item = &Entry> {
        self.all().filter(move |entry| entry.standing().is_some_and(|(_, found)| found == file))
    }
}

/// Notes that this process uses the file of the descriptor, as long as the descriptor is open, or a copy that is [kept
/// from children](keep_from_children). `false` if the process uses it already.
#[must_use]
pub fn claim(fd: BorrowedFd<'_>) -> bool {
    let Some(file) = file_of(fd.as_raw_fd()) else { return true };
    if ENTRIES.of(file).next().is_some() {
        return false;
    }
    ENTRIES.enter(fd.as_raw_fd(), file);
    true
}

/// Makes the descriptor useless in forked children, and with it all [claimed](claim) descriptors of the same file.
/// Nothing has to be done when it is closed.
pub fn keep_from_children(fd: BorrowedFd<'_>) {
    fork::in_children(&WATCH, leave_to_parent);
    if let Some(file) = file_of(fd.as_raw_fd()) {
        ENTRIES.enter(fd.as_raw_fd(), file);
        for entry in ENTRIES.of(file) {
            // Relaxed: a fork at this very moment counts as earlier.
            entry.kept.store(true, Ordering::Relaxed);
        }
    }
}

/// The file of a descriptor; `None` if the descriptor is not open.
fn file_of(fd: RawFd) -> Option<File> {
    // SAFETY: the descriptor is only asked for its file, and a number that is not open gives an error.
    let found = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// In a forked child: replaces each such descriptor by one that no other process has, so that the numbers stay taken
/// and their owners may close them. Does only what a signal handler may, because other threads may have held any lock.
extern "C" fn leave_to_parent() {
    let mut stand_in = None;
    // Relaxed: the child has one thread here.
    for entry in ENTRIES.all().filter(|entry| entry.kept.load(Ordering::Relaxed)) {
        let Some((fd, _)) = entry.standing() else { continue };
        // SAFETY: no memory is touched.
        let other = *stand_in.get_or_insert_with(|| unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) });
        if other >= 0 {
            // SAFETY: no memory is touched. The number stays open, so that its owner has something to close.
            unsafe { libc::dup3(other, fd, libc::O_CLOEXEC) };
        }
    }
    if let Some(other) = stand_in.filter(|other| *other >= 0) {
        // SAFETY: the descriptor was made above, and no other code knows it.
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

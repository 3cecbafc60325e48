//! Real shared memory: which descriptors are mapped, and which are refused.
#![cfg(not(any(loom, miri)))]

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nearcall_ring::{Mapping, Segment};
use rustix::fs::{MemfdFlags, SealFlags};

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&fd, len).expect("a size");
    rustix::fs::fcntl_add_seals(&fd, seals).expect("seals");
    fd
}

const ALL: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

#[test]
fn both_ends_see_the_same_memory() {
    let (segment, fd) = Segment::create(4096).expect("a segment");
    let peer = Segment::open(fd.as_fd(), 4096).expect("the peer's view");
    drop(fd);
    let (mut to_peer, mut from_peer) = segment.lanes();
    let (mut to_us, mut from_us) = peer.lanes();
    assert_eq!(to_peer.try_write(&[b"there"], false), Ok(true));
    assert_eq!(to_us.try_write(&[b"back again"], true), Ok(true));
    let record = from_us.peek().expect("sane").expect("a record");
    assert_eq!((record.len, record.note), (5, false));
    let record = from_peer.peek().expect("sane").expect("a record");
    assert_eq!((record.len, record.note), (10, true));
    segment.own_side().park();
    assert!(peer.peer_side().is_parked() && peer.peer_side().claim_wake());
    assert!(!peer.peer_side().claim_wake(), "once per sleep");
    assert!(segment.own_side().wake_cost_ns().is_some());
}

#[test]
fn memory_that_could_shrink_under_us_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW] {
        let fd = memfd(8192, seals);
        let error = Mapping::open(fd.as_fd(), 8192).expect_err("not sealed");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{seals:?}: {error}");
    }
    assert!(Mapping::open(memfd(8192, ALL).as_fd(), 8192).is_ok());
}

#[test]
fn a_size_that_was_not_announced_is_refused() {
    for len in [0, 1, 4096, 8191, 8193, 1 << 40] {
        let fd = memfd(8192, ALL);
        let error = Mapping::open(fd.as_fd(), len).expect_err("another size");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{len}: {error}");
    }
    let fd = memfd(0, ALL);
    assert!(Mapping::open(fd.as_fd(), 0).is_err(), "nothing to map");
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let error = Mapping::open(reader.as_fd(), 4096).expect_err("a pipe");
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    assert!(Mapping::open(file.as_fd(), 4096).is_err());
}

#[test]
fn memory_without_write_permission_is_refused() {
    let fd = memfd(8192, ALL.difference(SealFlags::SEAL) | SealFlags::WRITE | SealFlags::SEAL);
    assert!(Mapping::open(fd.as_fd(), 8192).is_err(), "sealed against writing");
}

#[test]
fn rings_of_odd_sizes_are_refused() {
    let fd = memfd(Segment::size(4096) as u64, ALL);
    for ring in [0, 1, 4095, 4097, 2048, 12_288, 1 << 31, usize::MAX] {
        assert!(Segment::open(fd.as_fd(), ring).is_err(), "{ring}");
    }
    assert!(Segment::open(fd.as_fd(), 4096).is_ok());
}

#[test]
#[should_panic(expected = "past the mapping")]
fn reading_past_the_end_panics() {
    let (mapping, _) = Mapping::create("test", 4096, false).expect("memory");
    mapping.read(4090, &mut [0; 7]);
}

#[test]
#[should_panic(expected = "past the mapping")]
fn writing_at_an_offset_that_wraps_panics() {
    let (mapping, _) = Mapping::create("test", 4096, false).expect("memory");
    mapping.write(usize::MAX, &[0; 2]);
}

#[test]
fn nothing_is_left_when_all_is_dropped() {
    let count = || std::fs::read_to_string("/proc/self/maps").expect("maps").matches("memfd:leak-test").count();
    for len in [8192, 4096, 1 << 18, (1 << 20) + 4096].repeat(15) {
        let (mapping, fd) = Mapping::create("leak-test", len, true).expect("memory");
        let other = Mapping::open(fd.as_fd(), len).expect("again");
        assert_eq!(count(), 2);
        drop((mapping, other));
    }
    assert_eq!(count(), 0);
}

#[test]
fn more_than_the_system_has_is_refused_before_it_is_taken() {
    let error = Mapping::create_shown("test", 1 << 50).expect_err("nobody has a pebibyte");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
}

#[test]
fn signals_do_not_keep_memory_from_being_allocated() {
    extern "C" fn nothing(_: libc::c_int) {}
    let (process, here) = (rustix::process::getpid(), rustix::thread::gettid());
    let done = AtomicBool::new(false);
    // SAFETY: the handler does nothing, and no other test uses the signal.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as libc::sighandler_t) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: a thread of this process, which waits for this one.
                unsafe { libc::syscall(libc::SYS_tgkill, process.as_raw_pid(), here.as_raw_pid(), libc::SIGUSR2) };
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let made = Mapping::create_shown("test", 48 << 20).map(drop);
        let also = Mapping::create("test", 48 << 20, true).map(drop);
        done.store(true, Ordering::Relaxed);
        made.and(also).expect("memory, whatever comes meanwhile");
    });
}

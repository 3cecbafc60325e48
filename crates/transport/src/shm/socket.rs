//! What travels on the rendezvous socket of a shared memory connection after the handshake.
//!
//! ```text
//! 'B'                                   the bell: look at your ring
//! 'R' | u32 id | u64 size | descriptor  a region of shared memory for long payloads
//! 'S' | u32 number | u64 size | descriptor   a buffer that messages will name
//! ```

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;

use nearcall_platform::peer_socket::PeerSocket;
use nearcall_platform::per_process::{Mine, PerProcess};
use nearcall_platform::sys::{self, Received};
use nearcall_ring::Segment;
use rustix::net::{RecvFlags, SendFlags};

use crate::errors::{LinkError, NO_DESCRIPTOR};
use crate::sync::{AtomicU64, Ordering};

const BELL: u8 = b'B';
const REGION: u8 = b'R';
const SHOWN: u8 = b'S';
const ANNOUNCEMENT: usize = 13;

/// Regions that a peer may announce before it uses them.
const MOST_ANNOUNCED: usize = 64;

/// While peers' descriptors that no note has named yet are more than this part of those that this process may have, none
/// of them may have more than [`FEW_ANNOUNCED`] of each kind.
const PART_UNUSED: u64 = 4;
const FEW_ANNOUNCED: usize = 4;

/// Descriptors of all connections of this process that no note has named yet.
static UNUSED: LazyLock<PerProcess<AtomicU64>> = LazyLock::new(|| PerProcess::new(AtomicU64::default));

/// One of them.
#[derive(Debug)]
struct Unused(Mine<AtomicU64>);

impl Unused {
    fn new() -> Self {
        let count = UNUSED.get();
        // Relaxed: a number that nothing else follows from, here and below.
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }

    /// Whether they leave too little room for others' descriptors.
    fn are_many() -> bool {
        // Asked anew: it may change while this process runs.
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        most.is_some_and(|most| UNUSED.get().load(Ordering::Relaxed) >= most / PART_UNUSED)
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A region that the peer has made, or a buffer that it shows, before it is mapped.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) id: u32,
    pub(super) size: u64,
    pub(super) fd: OwnedFd,
    _unused: Unused,
}

/// The receiving half of the socket: sorts what arrives.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: VecDeque<u8>,
    fds: Vec<OwnedFd>,
    announced: Vec<Announced>,
    /// Buffers, in the order in which they were shown.
    shown: Vec<Announced>,
}

/// What a read left in the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The socket was empty before the read.
    Empty,
    /// Nothing: the read took everything. So hearing a bell costs one system call, not two.
    Nothing,
    /// There may be more.
    Perhaps,
}

/// The most reads in a row: a peer that never stops writing must not keep the receiving thread for ever.
const MOST_READS: usize = 64;
/// The most reads for a region that must have been announced: more messages than a socket holds.
const MOST_READS_FOR_REGION: usize = 4096;

impl Inbox {
    /// Reads what has arrived. Waits for something if `wait` is set.
    pub(super) fn read(&mut self, socket: &PeerSocket, wait: bool) -> Result<(), LinkError> {
        let mut left = self.read_once(socket, if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT })?;
        for _ in 1..MOST_READS {
            if left != Left::Perhaps {
                break;
            }
            left = match self.read_once(socket, RecvFlags::DONTWAIT) {
                // The next read finds the end again, and has nothing else to report.
                Err(LinkError::Closed) => break,
                read => read?,
            };
        }
        Ok(())
    }

    /// One read.
    fn read_once(&mut self, socket: &PeerSocket, flags: RecvFlags) -> Result<Left, LinkError> {
        let mut buffer = [0; 256];
        let fds = self.fds.len();
        match sys::receive_memory(socket.as_fd(), &mut buffer, &mut self.fds, flags) {
            Ok(Received { bytes: 0, .. }) => Err(LinkError::Closed),
            Ok(Received { lost_fds: true, .. }) if self.fds.is_empty() => {
                Err(LinkError::Exhausted(NO_DESCRIPTOR.into()))
            }
            Ok(Received { foreign_fds: true, .. }) => {
                Err(LinkError::Broken("the peer sent a descriptor that is not shared memory".into()))
            }
            Ok(Received { bytes, .. }) => {
                // A read ends behind a message with a descriptor. Any other short read has emptied the socket.
                let more = bytes == buffer.len() || self.fds.len() > fds;
                self.sort(&buffer[..bytes])?;
                if self.fds.len() > 1 {
                    return Err(LinkError::Broken("the peer sends descriptors that nobody asked for".into()));
                }
                Ok(if more { Left::Perhaps } else { Left::Nothing })
            }
            Err(rustix::io::Errno::AGAIN) => Ok(Left::Empty),
            Err(error) => Err(error.into()),
        }
    }

    fn sort(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        const LOST: &str = "the peer announced shared memory without sending its descriptor";
        self.bytes.extend(bytes);
        while let Some(&first) = self.bytes.front() {
            match first {
                BELL => {
                    self.bytes.pop_front();
                }
                REGION | SHOWN if self.bytes.len() < ANNOUNCEMENT => break,
                REGION | SHOWN => {
                    let note: Vec<u8> = self.bytes.drain(..ANNOUNCEMENT).collect();
                    let id = u32::from_le_bytes([note[1], note[2], note[3], note[4]]);
                    let size = u64::from_le_bytes(note[5..].try_into().expect("8 bytes"));
                    if self.fds.is_empty() {
                        return Err(LinkError::Broken(LOST.into()));
                    }
                    let (list, most) = match first {
                        REGION => (&mut self.announced, MOST_ANNOUNCED),
                        _ => (&mut self.shown, Segment::BUFFERS),
                    };
                    if list.len() >= most || list.len() >= FEW_ANNOUNCED && Unused::are_many() {
                        return Err(LinkError::Broken("the peer announces shared memory that it does not use".into()));
                    }
                    list.push(Announced { id, size, fd: self.fds.remove(0), _unused: Unused::new() });
                }
                _ => return Err(LinkError::Broken("the peer sent something unknown on the rendezvous socket".into())),
            }
        }
        Ok(())
    }

    /// The announced region `id`. The peer sent the announcement before the record that uses the region, so it has
    /// arrived already, even if the peer has hung up since.
    pub(super) fn region(&mut self, socket: &PeerSocket, id: u32) -> Result<Announced, LinkError> {
        self.find(socket, id, |inbox| &mut inbox.announced)
    }

    /// The buffer that was shown under this number. As for a [region](Inbox::region), it has arrived already.
    pub(super) fn shown(&mut self, socket: &PeerSocket, number: u32) -> Result<Announced, LinkError> {
        self.find(socket, number, |inbox| &mut inbox.shown)
    }

    fn find(
        &mut self,
        socket: &PeerSocket,
        id: u32,
        list: impl Fn(&mut Self) -> &mut Vec<Announced>,
    ) -> Result<Announced, LinkError> {
        for _ in 0..MOST_READS_FOR_REGION {
            if let Some(at) = list(self).iter().position(|announced| announced.id == id) {
                return Ok(list(self).remove(at));
            }
            if self.read_once(socket, RecvFlags::DONTWAIT)? == Left::Empty {
                break;
            }
        }
        Err(LinkError::Broken("the peer uses shared memory that it has not sent".into()))
    }
}

/// Wakes the peer. If its socket is full of bells, it is being woken already.
pub(super) fn ring_bell(socket: &PeerSocket) {
    // An error means that the peer is gone, which every receiver notices by itself.
    let _ = rustix::net::send(socket, &[BELL], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Sends the descriptor of a region of `size` bytes to the peer. `false` if the socket is full.
pub(super) fn announce(socket: &PeerSocket, id: u32, size: u64, region: &OwnedFd) -> Result<bool, LinkError> {
    send_memory(socket, REGION, id, size, region.as_fd())
}

/// Shows the peer a buffer of `size` bytes under a number. `false` if the socket is full.
pub(super) fn show(socket: &PeerSocket, number: u32, size: u64, buffer: BorrowedFd<'_>) -> Result<bool, LinkError> {
    send_memory(socket, SHOWN, number, size, buffer)
}

fn send_memory(socket: &PeerSocket, what: u8, id: u32, size: u64, fd: BorrowedFd<'_>) -> Result<bool, LinkError> {
    let mut note = [0; ANNOUNCEMENT];
    note[0] = what;
    note[1..5].copy_from_slice(&id.to_le_bytes());
    note[5..].copy_from_slice(&size.to_le_bytes());
    match sys::send_with_fds(socket.as_fd(), &note, &[fd]) {
        Ok(ANNOUNCEMENT) => Ok(true),
        Ok(_) => Err(LinkError::Broken("the system sent a part of a few bytes".into())),
        // Also when too many of this user's descriptors are in flight in sockets: their readers will take them.
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::TOOMANYREFS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

//! What travels on the rendezvous socket of a shared memory connection after the handshake.
//!
//! ```text
//! 'B'                                   the bell: look at your ring
//! 'R' | u32 id | u64 size | descriptor  a region of shared memory for long payloads
//! ```

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use nearcall_platform::sys::{self, Received};
use rustix::net::{RecvFlags, SendFlags};

use crate::link::{LinkError, NO_DESCRIPTOR};

const BELL: u8 = b'B';
const REGION: u8 = b'R';
const REGION_LEN: usize = 13;

/// Regions a peer may announce before it uses them.
const MOST_ANNOUNCED: usize = 64;

/// A region the peer has made, not mapped yet.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) id: u32,
    pub(super) size: u64,
    pub(super) fd: OwnedFd,
}

/// The receiving half of the socket: sorts what arrives.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: VecDeque<u8>,
    fds: Vec<OwnedFd>,
    announced: Vec<Announced>,
}

/// Reads at most so often in a row: a peer that never stops writing must not keep the reader for ever.
const MOST_READS: usize = 64;
/// Reads until an announced region must have come: more messages than a socket holds.
const MOST_READS_FOR_REGION: usize = 4096;

impl Inbox {
    /// Reads what is there. Waits for something if `wait`, else only looks.
    pub(super) fn read(&mut self, socket: &OwnedFd, wait: bool) -> Result<(), LinkError> {
        if self.read_once(socket, if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT })? {
            for _ in 1..MOST_READS {
                match self.read_once(socket, RecvFlags::DONTWAIT) {
                    Ok(true) => {}
                    // The end will be found again by the next read, which has nothing to tell but that.
                    Ok(false) | Err(LinkError::Closed) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// One read. `false` if there was nothing. A read ends with the message that brought a descriptor.
    fn read_once(&mut self, socket: &OwnedFd, flags: RecvFlags) -> Result<bool, LinkError> {
        let mut buffer = [0; 256];
        match sys::receive_with_fds(socket.as_fd(), &mut buffer, &mut self.fds, flags) {
            Ok(Received { bytes: 0, .. }) => Err(LinkError::Closed),
            Ok(Received { lost_fds: true, .. }) if self.fds.is_empty() => {
                Err(LinkError::Exhausted(NO_DESCRIPTOR.into()))
            }
            Ok(Received { bytes, .. }) => {
                self.sort(&buffer[..bytes])?;
                if self.fds.len() > 1 {
                    return Err(LinkError::Broken("the peer sends descriptors that nobody asked for".into()));
                }
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN) => Ok(false),
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
                REGION if self.bytes.len() < REGION_LEN => break,
                REGION => {
                    let note: Vec<u8> = self.bytes.drain(..REGION_LEN).collect();
                    let id = u32::from_le_bytes([note[1], note[2], note[3], note[4]]);
                    let size = u64::from_le_bytes(note[5..].try_into().expect("8 bytes"));
                    if self.fds.is_empty() {
                        return Err(LinkError::Broken(LOST.into()));
                    }
                    if self.announced.len() >= MOST_ANNOUNCED {
                        return Err(LinkError::Broken("the peer announces shared memory that it does not use".into()));
                    }
                    self.announced.push(Announced { id, size, fd: self.fds.remove(0) });
                }
                _ => return Err(LinkError::Broken("the peer sent something unknown on the rendezvous socket".into())),
            }
        }
        Ok(())
    }

    /// The announced region `id`. The peer sent it before the record that uses it, so it is there already, though it may
    /// have hung up since.
    pub(super) fn region(&mut self, socket: &OwnedFd, id: u32) -> Result<Announced, LinkError> {
        for _ in 0..MOST_READS_FOR_REGION {
            if let Some(at) = self.announced.iter().position(|region| region.id == id) {
                return Ok(self.announced.swap_remove(at));
            }
            if !self.read_once(socket, RecvFlags::DONTWAIT)? {
                break;
            }
        }
        Err(LinkError::Broken("the peer uses shared memory that it has not sent".into()))
    }
}

/// Wakes the peer. If its socket is full of bells, it is being woken already.
pub(super) fn ring_bell(socket: &OwnedFd) {
    // An error means that the peer is gone, which every receiver notices by itself.
    let _ = rustix::net::send(socket, &[BELL], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Sends the descriptor of a region of `size` bytes to the peer. `false` if the socket is full.
pub(super) fn announce(socket: &OwnedFd, id: u32, size: u64, region: &OwnedFd) -> Result<bool, LinkError> {
    let mut note = [0; REGION_LEN];
    note[0] = REGION;
    note[1..5].copy_from_slice(&id.to_le_bytes());
    note[5..].copy_from_slice(&size.to_le_bytes());
    match sys::send_with_fds(socket.as_fd(), &note, &[region.as_fd()]) {
        Ok(REGION_LEN) => Ok(true),
        Ok(_) => Err(LinkError::Broken("the system sent a part of a few bytes".into())),
        // Also when too many descriptors of this user are under way in sockets: its readers will take them.
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::TOOMANYREFS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

//! What travels on the rendezvous socket of a shared memory connection after the handshake.
//!
//! ```text
//! 'B'                                   the bell: look at your ring
//! 'R' | u32 id | u64 size | descriptor  a region of shared memory for long payloads
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags};

use crate::link::LinkError;
use crate::sys;

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

impl Inbox {
    /// Reads what is there. Waits for something if `wait`, else only looks.
    pub(super) fn read(&mut self, socket: &OwnedFd, wait: bool) -> Result<(), LinkError> {
        let mut buffer = [0; 256];
        let mut flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        loop {
            match sys::receive_with_fds(socket.as_fd(), &mut buffer, &mut self.fds, flags) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(got) => {
                    self.sort(&buffer[..got])?;
                    if got < buffer.len() {
                        return Ok(());
                    }
                    flags = RecvFlags::DONTWAIT;
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
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

    /// The announced region `id`. The peer sent it before the record that uses it, so it is there already.
    pub(super) fn region(&mut self, socket: &OwnedFd, id: u32) -> Result<Announced, LinkError> {
        self.read(socket, false)?;
        match self.announced.iter().position(|region| region.id == id) {
            Some(at) => Ok(self.announced.swap_remove(at)),
            None => Err(LinkError::Broken("the peer uses shared memory that it has not sent".into())),
        }
    }
}

/// Wakes the peer. If its socket is full of bells, it is being woken already.
pub(super) fn ring_bell(socket: &OwnedFd) {
    // An error means that the peer is gone, which every receiver notices by itself.
    let _ = rustix::net::send(socket, &[BELL], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Sends a region's descriptor to the peer.
pub(super) fn announce(socket: &OwnedFd, id: u32, size: u64, fd: &OwnedFd) -> io::Result<()> {
    let mut note = [0; REGION_LEN];
    note[0] = REGION;
    note[1..5].copy_from_slice(&id.to_le_bytes());
    note[5..].copy_from_slice(&size.to_le_bytes());
    sys::send_all_with_fds(socket.as_fd(), &note, &[fd.as_fd()], Instant::now() + Duration::from_secs(5))
}

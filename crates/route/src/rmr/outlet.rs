//! The sending half of a connection.

use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::Passed;
use nearcall_core::lock::{Mutex, MutexGuard};
use nearcall_platform::lock::around_sleep;
use nearcall_platform::sys::wait_for;
use rustix::event::PollFlags;

use super::poller::{Interest, Poller};
use crate::sync::{AtomicBool, Ordering};

/// How long a sender sleeps before it is asked whether to go on.
const SLICE: Duration = Duration::from_millis(50);

/// A socket, and what of a message it has not taken yet.
#[derive(Debug)]
pub struct Outlet {
    pub(super) socket: TcpStream,
    pub(super) number: u64,
    poller: Arc<Poller>,
    rest: Mutex<Rest>,
    /// Nothing is read.
    paused: AtomicBool,
    lost: AtomicBool,
}

/// What is not sent yet of the last message.
#[derive(Debug, Default)]
struct Rest {
    bytes: Vec<u8>,
    /// So many of them are sent.
    sent: usize,
}

impl Outlet {
    pub(super) fn new(socket: TcpStream, number: u64, poller: Arc<Poller>) -> Arc<Self> {
        Arc::new(Self {
            socket,
            number,
            poller,
            rest: Mutex::default(),
            paused: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        })
    }

    /// Whether the connection is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        // Relaxed: who does not see it yet finds a socket that is shut down.
        self.lost.load(Ordering::Relaxed)
    }

    /// Gives the connection up.
    pub fn lose(&self) {
        // Relaxed: as in `is_lost`.
        self.lost.store(true, Ordering::Relaxed);
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Sends a message, in pieces. With `go_on` it waits for room, and asks before each short wait whether to.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send(&self, pieces: &[&[u8]; 2], mut go_on: Option<&mut dyn FnMut() -> bool>) -> io::Result<Passed> {
        loop {
            {
                let mut rest = self.rest.lock();
                if self.flushed(&mut rest)?
                    && let Some(passed) = self.begin(&mut rest, pieces)?
                {
                    return Ok(passed);
                }
            }
            let Some(go_on) = &mut go_on else { return Ok(Passed::NoRoom) };
            if !go_on() {
                return Ok(Passed::NoRoom);
            }
            around_sleep(&mut || {
                // An error is a signal, or the end of the socket: the next attempt says which.
                let _ = wait_for(self.socket.as_fd(), PollFlags::OUT, Some(Instant::now() + SLICE));
            });
        }
    }

    /// Sends what could not be sent at once, and is watched for the rest.
    pub(super) fn flush(&self) {
        let mut rest = self.rest.lock();
        if self.flushed(&mut rest).is_err() {
            *rest = Rest::default();
        }
        // It fails for want of memory only. Then the next message that is sent takes the rest with it.
        let _ = self.watch(&rest);
    }

    /// Reads nothing more, or reads again.
    pub(super) fn pause(&self, paused: bool) {
        // Relaxed: the lock orders it.
        self.paused.store(paused, Ordering::Relaxed);
        self.flush();
    }

    fn watch(&self, rest: &Rest) -> io::Result<()> {
        // Relaxed: likewise.
        let read = !self.paused.load(Ordering::Relaxed);
        self.poller.watch(&self.socket, self.number, Interest { read, write: !rest.bytes.is_empty() })
    }

    /// Whether nothing is left of the last message.
    fn flushed(&self, rest: &mut MutexGuard<'_, Rest>) -> io::Result<bool> {
        while rest.sent < rest.bytes.len() {
            let Some(written) = self.write(&[IoSlice::new(&rest.bytes[rest.sent..])])? else { return Ok(false) };
            rest.sent += written;
        }
        rest.sent = 0;
        rest.bytes.clear();
        rest.bytes.shrink_to(KEPT_BYTES);
        Ok(true)
    }

    /// Sends what there is room for, and keeps the rest. `None` if there is no room at all.
    fn begin(&self, rest: &mut MutexGuard<'_, Rest>, pieces: &[&[u8]; 2]) -> io::Result<Option<Passed>> {
        let slices = pieces.map(IoSlice::new);
        let slices = if pieces[1].is_empty() { &slices[..1] } else { &slices[..] };
        let Some(written) = self.write(slices)? else { return Ok(None) };
        let len = pieces[0].len() + pieces[1].len();
        if written == len {
            return Ok(Some(Passed::Sent));
        }
        let first = written.min(pieces[0].len());
        rest.bytes.extend_from_slice(&pieces[0][first..]);
        rest.bytes.extend_from_slice(&pieces[1][written - first..]);
        self.watch(rest)?;
        Ok(Some(Passed::Begun))
    }

    /// Writes; `None` if there is no room.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        if self.is_lost() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        loop {
            match (&self.socket).write_vectored(slices) {
                Ok(written) => return Ok(Some(written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lose();
                    return Err(error);
                }
            }
        }
    }
}

/// Bytes of memory that an outlet keeps.
const KEPT_BYTES: usize = 64 * 1024;

//! What carries the bytes of a link: a socket as it is, or one with encryption on top.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::errors::LinkError;

/// What carries a link's bytes.
pub(crate) trait Wire: Send + Sync + std::fmt::Debug {
    /// The socket, to poll.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes some of the bytes, at most 1024 pieces. How many; `None` without room. Never waits.
    fn write(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError>;

    /// Sends what was taken and not sent. Whether all of it is out. Never waits.
    fn flush(&self) -> Result<bool, LinkError>;

    /// Reads some bytes. 0 is the end; `None` if there are none, even after a `wait`.
    fn read(&self, into: &mut [u8], wait: bool) -> Result<Option<usize>, LinkError>;

    /// The same, behind what a vector has, into its capacity and `most` bytes.
    fn append(&self, into: &mut Vec<u8>, most: usize, wait: bool) -> Result<Option<usize>, LinkError>;

    /// Whether it has bytes of its own that the socket no longer shows.
    fn holds(&self) -> bool;

    /// Tells the peer that nothing more comes, as well as that can be done without waiting.
    fn say_goodbye(&self);
}

/// A socket as it is.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) OwnedFd);

impl Plain {
    fn flags(wait: bool) -> RecvFlags {
        if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT }
    }
}

impl Wire for Plain {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn write(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendmsg(&self.0, pieces, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => return Ok(Some(sent)),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&self) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn read(&self, into: &mut [u8], wait: bool) -> Result<Option<usize>, LinkError> {
        match rustix::net::recv(&self.0, into, Self::flags(wait)) {
            Ok((_, got)) => Ok(Some(got)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn append(&self, into: &mut Vec<u8>, most: usize, wait: bool) -> Result<Option<usize>, LinkError> {
        let room = &mut into.spare_capacity_mut()[..most];
        match rustix::net::recv(&self.0, room, Self::flags(wait)).map(|((read, _), _)| read.len()) {
            Ok(got) => {
                let len = into.len() + got;
                // SAFETY: the system has just written these bytes into the room behind the old length.
                unsafe { into.set_len(len) };
                Ok(Some(got))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn holds(&self) -> bool {
        false
    }

    fn say_goodbye(&self) {}
}

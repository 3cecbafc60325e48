//! The layer that carries the bytes of a link: a plain socket, or one with encryption on top.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nearcall_platform::peer_socket::PeerSocket;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::errors::LinkError;

/// Carries a link's bytes.
pub(crate) trait Wire: Send + Sync + std::fmt::Debug {
    /// The socket, to poll.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Accepts some of the bytes, from at most 1024 pieces. Returns how many; `None` if there is no room. Never waits.
    fn write(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError>;

    /// Sends what was accepted and not sent. Whether all of it is out. Never waits.
    fn flush(&self) -> Result<bool, LinkError>;

    /// Reads some bytes. 0 is the end of the stream; `None` if there are no bytes, even after a `wait`.
    fn read(&self, into: &mut [u8], wait: bool) -> Result<Option<usize>, LinkError>;

    /// Like `read`, but appends at most `most` bytes to a vector, within its capacity.
    fn append(&self, into: &mut Vec<u8>, most: usize, wait: bool) -> Result<Option<usize>, LinkError>;

    /// Whether this layer holds bytes that the socket no longer shows.
    fn holds(&self) -> bool;

    /// Tells the peer that nothing more comes, as far as that is possible without waiting.
    fn say_goodbye(&self);
}

/// A socket without encryption.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) PeerSocket);

impl Plain {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(PeerSocket::new(socket))
    }

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

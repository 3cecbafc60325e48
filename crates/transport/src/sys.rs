//! The few socket calls this crate needs, with descriptors beside the bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// Most descriptors taken from one message; more are closed.
const MOST_FDS: usize = 4;

/// Reads bytes and any descriptors that came with them. `Ok(0)` is the end.
pub(crate) fn receive_with_fds(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    flags: RecvFlags,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(got.bytes)
}

/// Sends all of `bytes`, with `fds` beside the first of them, waiting for room until `deadline`.
pub(crate) fn send_all_with_fds(
    socket: BorrowedFd<'_>,
    mut bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    deadline: Instant,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    while !bytes.is_empty() {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                control.clear();
            }
            Err(rustix::io::Errno::AGAIN) => {
                if !wait_for(socket, PollFlags::OUT, Some(deadline))? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Polls one descriptor until `deadline` (for ever without one). `false` when time ran out.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, events: PollFlags, deadline: Option<Instant>) -> io::Result<bool> {
    let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), events)];
    Ok(poll(&mut fds, timeout.as_ref())? > 0)
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().min(i64::MAX as u64) as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// The user this process acts for.
pub(crate) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

//! Calls on sockets that the standard library lacks: sending descriptors, identifying the peer, waiting for a socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};

use crate::closing::close_aside;

/// The most descriptors that are taken from one message. Further ones are closed.
const MOST_FDS: usize = 4;

/// The result of a read: bytes (0 is the end), and what became of descriptors that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes read.
    pub bytes: usize,
    /// Descriptors arrived and were lost, because this process has as many as it may.
    pub lost_fds: bool,
    /// Descriptors arrived that are no shared memory, and were not kept. Only [`receive_memory`] looks at that.
    pub foreign_fds: bool,
}

/// The most descriptors that Linux carries beside one message.
const MOST_CARRIED: usize = 253;

/// Reads bytes, and the descriptors of shared memory that were sent with them by a peer that may mean harm. Others are
/// [closed aside](close_aside), and `foreign_fds` says that there were some.
pub fn receive_memory(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    memory: &mut Vec<OwnedFd>,
    flags: RecvFlags,
) -> rustix::io::Result<Received> {
    // Room for all of them: the system closes those that it finds no room for here and now.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_CARRIED))];
    let before = memory.len();
    let mut received = receive(socket, into, memory, &mut RecvAncillaryBuffer::new(&mut space), flags)?;
    for fd in memory.extract_if(before.., |fd| rustix::fs::fcntl_get_seals(fd).is_err()) {
        received.foreign_fds = true;
        close_aside(fd);
    }
    Ok(received)
}

/// Has the system refuse whoever wants to send descriptors to this Unix socket, or to one accepted from it: so none has
/// to be closed. Before Linux 6.16 they arrive.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let no: libc::c_int = 0;
    let len = size_of_val(&no) as libc::socklen_t;
    // An error means that this system does not have the option.
    // SAFETY: the pointer is to a live local of the size that `len` says.
    let _ =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const no).cast(), len) };
}

/// Reads bytes, and the descriptors that were sent with them by a process that is trusted.
pub fn receive_with_fds(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    flags: RecvFlags,
) -> rustix::io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    receive(socket, into, fds, &mut RecvAncillaryBuffer::new(&mut space), flags)
}

fn receive(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    control: &mut RecvAncillaryBuffer<'_>,
    flags: RecvFlags,
) -> rustix::io::Result<Received> {
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(into)], control, flags | RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(Received { bytes: got.bytes, lost_fds: got.flags.contains(ReturnFlags::CTRUNC), foreign_fds: false })
}

/// Sends as many bytes as there is room for, with `fds` beside the first byte. Never waits, and raises no signal.
pub fn send_with_fds(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    loop {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Polls one descriptor until `deadline` (for ever without one). `false` if time ran out.
pub fn wait_for(fd: BorrowedFd<'_>, events: PollFlags, deadline: Option<Instant>) -> io::Result<bool> {
    let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), events)];
    Ok(poll(&mut fds, timeout.as_ref())? > 0)
}

/// Sleeps until the peer of a socket has hung up, `event` is readable, a signal comes, or `deadline`. Bytes that arrive on the
/// socket wake nobody.
pub fn wait_for_hang_up(socket: BorrowedFd<'_>, event: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<()> {
    let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
    let watched = [(socket, PollFlags::RDHUP), (event, PollFlags::IN)];
    let mut fds = watched.map(|(fd, events)| PollFd::from_borrowed_fd(fd, events));
    match poll(&mut fds, timeout.as_ref()) {
        Err(rustix::io::Errno::INTR) => Ok(()),
        polled => Ok(polled.map(drop)?),
    }
}

/// Polls two descriptors until one is ready, or until `deadline`. `false` if time ran out.
pub fn wait_for_any(fds: [(BorrowedFd<'_>, PollFlags); 2], deadline: Instant) -> io::Result<bool> {
    let timeout = timespec(deadline.saturating_duration_since(Instant::now()));
    let mut fds = fds.map(|(fd, events)| PollFd::from_borrowed_fd(fd, events));
    Ok(poll(&mut fds, Some(&timeout))? > 0)
}

/// Whether the peer of a socket has hung up. Does not read what the peer sent before.
pub fn hung_up(socket: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    poll(&mut fds, Some(&now)).is_ok_and(|found| found > 0)
}

/// Whether the peer's system has acknowledged all bytes that were written. For a Unix socket, they have always arrived.
pub fn is_delivered(socket: BorrowedFd<'_>) -> bool {
    if sockopt::socket_domain(socket).is_ok_and(|domain| domain == AddressFamily::UNIX) {
        return true;
    }
    is_taken(socket)
}

/// Whether nothing that was written is left: over TCP the peer's system has acknowledged it, and at a Unix socket the other
/// end has read it.
pub fn is_taken(socket: BorrowedFd<'_>) -> bool {
    let mut left: libc::c_int = 0;
    // SAFETY: this request writes one int, which `left` is.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) };
    // Fails for a socket that is not connected any more: nothing will be delivered.
    result != 0 || left == 0
}

/// The process at the other end of a Unix socket, as the kernel knows it. The process id is 0 if it is not visible from
/// here.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals of the size that `len` says; a ucred is plain integers.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len)
    };
    if result == 0 { Ok(who) } else { Err(io::Error::last_os_error()) }
}

/// The supplementary groups of the process at the other end of a Unix socket; none if the system does not say.
pub fn peer_groups(socket: BorrowedFd<'_>) -> Vec<libc::gid_t> {
    // The most groups that Linux allows.
    let mut groups: Vec<libc::gid_t> = vec![0; 65_536];
    let mut len = size_of_val(&groups[..]) as libc::socklen_t;
    // SAFETY: the first pointer is to a live buffer of the size that `len` says, the second to a live local.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    groups.truncate(if result == 0 { len as usize / size_of::<libc::gid_t>() } else { 0 });
    groups
}

/// The duration in the system's form. Durations that are too long become the longest one.
#[must_use]
pub fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().min(i64::MAX as u64) as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// The user that this process acts for.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Bytes that nobody can guess.
///
/// # Errors
/// The system has none.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // So few come at once or not at all.
    loop {
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(got) if got == N => return Ok(bytes),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::other(format!("the system gives no random numbers: {error}"))),
        }
    }
}

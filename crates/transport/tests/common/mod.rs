//! Helpers that this crate's tests share.
#![allow(dead_code, unused_macros, unreachable_pub, reason = "each test binary uses its part of this")]

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use nearcall_transport::{
    Accepted, Body, CallKey, Connected, Credentials, DevCerts, Incoming, Link, LinkError, Listener, Options, Outgoing,
    Pem, Room, Url, connect, dev_certs,
};
use nearcall_wire::{FrameHead, HEAD_LEN, Hello, Kind, Limits, Preamble, Welcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Makes a test of each function for each transport. The function gets the transport's scheme.
macro_rules! every_transport {
    ($($test:ident)*) => {
        every_transport!(@ shm "shm" $($test)*);
        every_transport!(@ inproc "inproc" $($test)*);
        every_transport!(@ unix "unix" $($test)*);
        every_transport!(@ tcp "tcp" $($test)*);
        every_transport!(@ tls "tls" $($test)*);
        every_transport!(@ fd "fd" $($test)*);
    };
    (@ $module:ident $scheme:literal $($test:ident)*) => {
        mod $module {
            $(#[test] fn $test() { super::$test($scheme); })*
        }
    };
}

/// After this time, a waiting test has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A URL that no other test uses.
pub fn fresh(scheme: &str) -> Url {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let url = match scheme {
        "tcp" | "tls" => format!("{scheme}://127.0.0.1:0"),
        "unix" | "grpc+unix" => format!("{scheme}://{}/{name}.sock", std::env::temp_dir().display()),
        scheme => format!("{scheme}://{name}"),
    };
    url.parse().expect("a URL")
}

/// Options with small rings, which are full soon.
pub fn small_ring() -> Options {
    Options { ring_size: 4096, ..Options::default() }
}

/// The path of a `unix://` URL's socket.
pub fn socket_path(url: &Url) -> PathBuf {
    url.to_string().strip_prefix("unix://").expect("asked for one").into()
}

pub fn welcome(options: &Options) -> Welcome {
    let limits = Limits { max_message: options.max_message };
    Welcome { version: "test".into(), limits, description: "{}".into(), memory: false, buffers: 0 }
}

pub fn hello(ring: usize) -> Hello {
    Hello { version: "test".into(), limits: Limits { max_message: 1 << 30 }, ring: ring as u64, buffers: 32 }
}

pub fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

/// Accepts the next client of a listener, as a server does.
pub fn accept(listener: &Listener, options: &Options) -> Result<Arc<dyn Link>, Option<String>> {
    assert!(readable(listening_fd(listener), PATIENCE), "nobody connects");
    let mut opening = listener.accept().expect("accept").expect("a client").opening;
    let end = Instant::now() + PATIENCE;
    loop {
        match opening.advance(&welcome(options), options) {
            Ok(true) => return Ok(opening.into_link(options).expect("welcomed")),
            Ok(false) => {
                assert!(opening.awaits().arrivals, "there is room for a short welcome");
                assert!(readable(opening_fd(&*opening), end - Instant::now()), "no hello comes");
            }
            Err(Some(why)) => {
                opening.reject(&why, false);
                return Err(Some(why));
            }
            Err(None) => return Err(None),
        }
    }
}

/// Certificates for the tests, made once.
pub struct Certificates(DevCerts);

impl Certificates {
    pub fn get() -> &'static Self {
        static MADE: LazyLock<Certificates> = LazyLock::new(|| Certificates::new(&["127.0.0.1", "localhost"], 1));
        &MADE
    }

    pub fn new(names: &[&str], days: i32) -> Self {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Self(dev_certs(&names, days).expect("certificates"))
    }

    pub fn ca(&self) -> Pem {
        pem("ca.pem", &self.0.ca)
    }

    pub fn server(&self, mutual: bool) -> Credentials {
        let (cert, key) = &self.0.server;
        let ca = mutual.then(|| self.ca());
        Credentials::server(&pem("server.pem", cert), &pem("server.key", key), ca.as_ref()).expect("good certificates")
    }

    pub fn client(&self, mutual: bool) -> Credentials {
        let (cert, key) = &self.0.client;
        let own = (pem("client.pem", cert), pem("client.key", key));
        Credentials::client(Some(&self.ca()), mutual.then_some((&own.0, &own.1)), None).expect("good certificates")
    }

    pub fn client_key(&self) -> Pem {
        pem("client.key", &self.0.client.1)
    }

    pub fn server_cert(&self) -> Pem {
        pem("server.pem", &self.0.server.0)
    }
}

pub fn pem(name: &str, text: &str) -> Pem {
    Pem { name: name.to_owned(), text: text.as_bytes().to_vec() }
}

/// The two ends of a connection.
pub struct Pair {
    pub client: Arc<dyn Link>,
    pub server: Arc<dyn Link>,
}

pub fn pair(scheme: &str, client: &Options, server: &Options) -> Pair {
    let certificates = Certificates::get();
    let server = &Options { tls: server.tls.clone().or_else(|| Some(certificates.server(false))), ..server.clone() };
    let client = &Options { tls: client.tls.clone().or_else(|| Some(certificates.client(false))), ..client.clone() };
    // The original sockets are closed when both sides have their copies.
    let (served, dialled, _given) = ends(scheme);
    let listener = Listener::bind(&served, server).expect("bind");
    let url = dialled.unwrap_or_else(|| listener.url().clone());
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| accept(&listener, server).expect("a good client"));
        let Connected { link, .. } = connect(&url, "test", client).expect("connect");
        Pair { client: link, server: accepted.join().expect("no panic") }
    })
}

/// The URL to serve, the URL for the client if it differs, and the sockets that have to stay open until both are
/// connected.
fn ends(scheme: &str) -> (Url, Option<Url>, Option<[UnixStream; 2]>) {
    if scheme != "fd" {
        return (fresh(scheme), None, None);
    }
    let sockets: [UnixStream; 2] = UnixStream::pair().expect("a pair").into();
    let [served, dialled] = [0, 1].map(|end| descriptor(&sockets[end]));
    (served, Some(dialled), Some(sockets))
}

/// The URL of a socket's descriptor.
fn descriptor(socket: &UnixStream) -> Url {
    format!("fd://{}", socket.as_raw_fd()).parse().expect("a URL")
}

/// The URLs of sockets, whose descriptors are left to the users of the URLs.
pub fn inherited<const N: usize>(sockets: impl Into<[UnixStream; N]>) -> [Url; N] {
    sockets.into().map(|socket| format!("fd://{}", socket.into_raw_fd()).parse().expect("a URL"))
}

/// The call that all frames of these tests belong to.
pub const CALL: CallKey = CallKey { number: 7, side: 0 };

/// The encoded head of an item of that call.
pub fn item_head() -> [u8; HEAD_LEN] {
    FrameHead::plain(Kind::Item, 0, 0, CALL.number)
}

/// A frame to send: a body, and buffers beside it, if there are any.
pub fn item<'a>(body: &'a [u8], buffers: &'a [&'a [u8]]) -> Outgoing<'a> {
    Outgoing::new(Kind::Item, if buffers.is_empty() { Body::Whole(body) } else { Body::Parts(body, buffers) })
}

/// Sends a frame, and waits for room while other threads receive.
pub fn send(link: &dyn Link, body: &[u8], buffers: &[&[u8]]) -> Result<(), LinkError> {
    send_frame(link, &item(body, buffers))
}

/// Sends any frame, and waits for room while other threads receive.
pub fn send_frame(link: &dyn Link, frame: &Outgoing<'_>) -> Result<(), LinkError> {
    let end = Instant::now() + PATIENCE;
    let mut blocked = || {
        assert!(Instant::now() < end, "no room is made");
        link.wait_room(false, Duration::from_millis(100))
    };
    link.send(CALL, frame, Room::Wait(&mut blocked)).map(drop)
}

/// The next frame, or `None` at the deadline; see [`Link::receive`].
pub fn next_frame(link: &dyn Link, deadline: Option<Instant>) -> Result<Option<Incoming>, LinkError> {
    let mut place = None;
    link.receive(deadline, &mut place).map(|()| place)
}

/// The descriptor that tells of a listener's clients.
pub fn listening_fd(listener: &Listener) -> BorrowedFd<'_> {
    listener.signal().fd().expect("a socket")
}

/// The descriptor that tells of what an opening waits for.
pub fn opening_fd(opening: &dyn Accepted) -> BorrowedFd<'_> {
    opening.signal().fd().expect("a socket")
}

/// The descriptor that a link's poller polls.
pub fn signal_fd(link: &dyn Link) -> BorrowedFd<'_> {
    link.signal().fd().expect("it has one")
}

/// Says that this side is awake, if the link wants to know.
pub fn disarm(link: &Arc<dyn Link>) {
    Arc::clone(link).memory().inspect(|memory| memory.disarm());
}

/// The link's descriptor has become readable.
pub fn signalled(link: &Arc<dyn Link>) -> Result<(), LinkError> {
    Arc::clone(link).memory().map_or(Ok(()), |memory| memory.signalled().map(drop))
}

/// What comes before a thread would sleep.
pub fn receive_soon(
    link: &Arc<dyn Link>,
    deadline: Option<Instant>,
    place: &mut Option<Incoming>,
) -> Result<(), LinkError> {
    match Arc::clone(link).memory() {
        Some(memory) => memory.receive_soon(deadline, place),
        None if link.spin() => link.try_receive_part(place),
        None => Ok(()),
    }
}

/// What has arrived of the next frame; see [`Link::try_receive_part`].
pub fn next_part(link: &dyn Link) -> Result<Option<Incoming>, LinkError> {
    let mut place = None;
    link.try_receive_part(&mut place).map(|()| place)
}

/// The payload of the next frame.
pub fn receive(link: &dyn Link) -> Result<Vec<u8>, LinkError> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(incoming) = next_frame(link, Some(end))? {
            return Ok(whole(&incoming));
        }
        assert!(Instant::now() < end, "no frame comes");
    }
}

/// The next frame, if one has arrived, with all its parts.
pub fn try_receive(link: &dyn Link) -> Result<Option<Incoming>, LinkError> {
    loop {
        match next_part(link) {
            Err(LinkError::Unfinished) => {}
            received => return received,
        }
    }
}

/// The payload of a frame that must belong to that call.
pub fn whole(incoming: &Incoming) -> Vec<u8> {
    assert_eq!((incoming.head.kind, incoming.head.call, incoming.head.flags), (Kind::Item, CALL.number, CALL.side));
    incoming.payload.to_vec()
}

/// Bytes that show which message they belong to, and where.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    // Each part begins elsewhere in one cycle. They are copied: the tests run without optimization.
    const PART: usize = 256;
    let cycle: [u8; 2 * PART] = std::array::from_fn(|at| (at * 7) as u8);
    let parts = (0..len.div_ceil(PART)).map(|part| &cycle[(seed * 131 + part) % PART..][..PART.min(len - part * PART)]);
    parts.collect::<Vec<_>>().concat()
}

/// The error that a link ends with.
pub fn end_of(link: &dyn Link) -> LinkError {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Err(error) = next_frame(link, Some(Instant::now() + Duration::from_millis(100))) {
            return error;
        }
    }
    panic!("the link goes on");
}

pub fn is_broken(error: &LinkError, hint: &str) {
    assert!(matches!(error, LinkError::Broken(why) if why.contains(hint)), "{hint:?} expected, got {error:?}");
}

/// Sends bytes, with descriptors beside them.
pub fn send_raw(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "too many descriptors");
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    assert_eq!(sent, bytes.len(), "a small message goes at once");
    Ok(())
}

pub fn hello_message(hello: &Hello) -> Vec<u8> {
    let body = hello.encode();
    let mut message = Preamble::Hello(body.len()).encode().to_vec();
    message.extend_from_slice(&body);
    message
}

pub fn memfd(len: u64, sealed: bool) -> OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags};
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&fd, len).expect("a size");
    if sealed {
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).expect("seals");
    }
    fd
}

/// How many descriptors this process has open.
pub fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// How many mappings of this crate's shared memory this process has.
pub fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("/proc").matches("memfd:nearcall").count()
}

/// Waits until a condition is true.
pub fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !check() {
        assert!(Instant::now() < end, "{what}: does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

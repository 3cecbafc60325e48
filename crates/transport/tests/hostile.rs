//! Peers that break the rules: in the handshake, on the rendezvous socket, in shared memory.

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{
    PATIENCE, accept, end_of, fresh, hello, hello_message, is_broken, item_head, listening_fd, memfd, next_frame,
    next_part, pattern, readable, receive, send_raw, signal_fd, signalled, socket_path, try_receive, until, welcome,
    whole,
};
use nearcall_ring::{Consumer, MappedLane, Mapping, Producer, Segment};
use nearcall_transport::{Awaits, ConnectError, Link, LinkError, Listener, Options, Url, connect};
use nearcall_wire::{MAGIC, PROTOCOL, Preamble};

const RING: usize = 1 << 16;

/// Connects to a listener's socket without the library.
fn dial(url: &Url) -> UnixStream {
    let text = url.to_string();
    let path = match text.split_once("://") {
        Some(("unix" | "grpc+unix", path)) => path.into(),
        Some(("shm", name)) => {
            let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|base| std::path::Path::new(base).is_dir());
            // SAFETY: no preconditions.
            let user = unsafe { libc::geteuid() };
            let dir = match base {
                Some(base) => std::path::PathBuf::from(base).join("nearcall"),
                None => std::env::temp_dir().join(format!("nearcall-{user}")),
            };
            dir.join(format!("{name}.sock"))
        }
        _ => panic!("{url} has no socket file"),
    };
    UnixStream::connect(path).expect("connect")
}

/// A client over shared memory that writes to the rings itself.
struct Hostile {
    socket: UnixStream,
    producer: Producer<MappedLane>,
    _consumer: Consumer<MappedLane>,
    link: Arc<dyn Link>,
}

impl Hostile {
    fn new(options: &Options) -> Self {
        let listener = Listener::bind(&fresh("shm"), &Options::default()).expect("bind");
        let mut socket = dial(listener.url());
        let (segment, fd) = Segment::create(RING).expect("memory");
        send_raw(&socket, &hello_message(&hello(RING)), &[fd.as_fd()]).expect("sent");
        let link = accept(&listener, options).expect("welcome");
        let mut preamble = [0; Preamble::LEN];
        socket.read_exact(&mut preamble).expect("a preamble");
        let Ok(Preamble::Welcome(len)) = Preamble::decode(&preamble) else { panic!("no welcome") };
        socket.read_exact(&mut vec![0; len]).expect("a welcome");
        let (producer, consumer) = segment.lanes();
        Self { socket, producer, _consumer: consumer, link }
    }

    fn note(&mut self, id: u32, len: u64, last: bool) {
        let mut note = id.to_le_bytes().to_vec();
        note.extend_from_slice(&len.to_le_bytes());
        note.push(u8::from(last));
        assert_eq!(self.producer.try_write(&[&note, &item_head()], true), Ok(true));
    }

    fn announce(&self, id: u32, size: u64, fd: Option<&OwnedFd>) {
        let mut message = vec![b'R'];
        message.extend_from_slice(&id.to_le_bytes());
        message.extend_from_slice(&size.to_le_bytes());
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        send_raw(&self.socket, &message, &fds).expect("sent");
    }

    fn is_refused(&self, hint: &str) {
        is_broken(&end_of(&*self.link), hint);
    }
}

#[test]
fn a_region_that_is_as_it_should_be_is_taken() {
    let mut peer = Hostile::new(&Options::default());
    let fd = memfd(1 << 20, true);
    let mapping = Mapping::open(fd.as_fd(), 1 << 20).expect("mapped");
    let bytes = pattern(3, 500_000);
    mapping.write(64, &bytes);
    peer.announce(7, 1 << 20, Some(&fd));
    peer.note(7, 500_000, false);
    assert_eq!(receive(&*peer.link).expect("a frame"), bytes);
    // Once more, without another announcement.
    peer.note(7, 10, true);
    assert_eq!(receive(&*peer.link).expect("a frame"), bytes[..10]);
    peer.note(7, 10, true);
    peer.is_refused("has not sent");
}

#[test]
fn regions_that_are_not_as_they_should_be_are_refused() {
    let page = 1 << 16;
    let cases: [(&str, u64, Option<OwnedFd>, u64, &str); 9] = [
        ("without its descriptor", page, None, 10, "without sending its descriptor"),
        ("of another size", 2 * page, Some(memfd(page, true)), 10, "size it announced"),
        ("smaller than its head", 64, Some(memfd(64, true)), 0, "more shared memory than it may"),
        ("of no size", 0, Some(memfd(0, true)), 0, "more shared memory than it may"),
        ("of any size", u64::MAX, Some(memfd(page, true)), 10, "more shared memory than it may"),
        ("that can shrink", page, Some(memfd(page, false)), 10, "not sealed"),
        ("that is a pipe", page, Some(std::io::pipe().expect("a pipe").0.into()), 10, "not shared memory"),
        ("shorter than its message", page, Some(memfd(page, true)), page - 63, "longer than the memory"),
        ("longer than the limit", page, Some(memfd(page, true)), 1 << 40, "the limit is"),
    ];
    for (what, size, fd, len, hint) in cases {
        let mut peer = Hostile::new(&Options::default());
        peer.announce(1, size, fd.as_ref());
        peer.note(1, len, false);
        let error = end_of(&*peer.link);
        assert!(matches!(&error, LinkError::Broken(why) if why.contains(hint)), "{what}: {error:?}");
    }
}

#[test]
fn more_memory_than_a_peer_may_keep_is_refused() {
    let mut peer = Hostile::new(&Options { max_message: 1 << 20, ..Options::default() });
    for id in 0..40 {
        peer.announce(id, 1 << 20, Some(&memfd(1 << 20, true)));
        peer.note(id, 10, false);
        if try_receive(&*peer.link).is_err() {
            assert!((33..36).contains(&id), "{id} regions of 1 MiB");
            return;
        }
    }
    panic!("no bound");
}

#[test]
fn notes_of_regions_that_never_came_are_refused() {
    let mut peer = Hostile::new(&Options::default());
    peer.note(3, 10, false);
    peer.is_refused("has not sent");
    let mut peer = Hostile::new(&Options::default());
    assert_eq!(peer.producer.try_write(&[b"short"], true), Ok(true));
    peer.is_refused("too short");
}

#[test]
fn frames_over_the_limit_are_refused_in_the_ring_too() {
    let mut peer = Hostile::new(&Options { max_message: 0, ..Options::default() });
    assert_eq!(peer.producer.try_write(&[&item_head(), &[0; 10_000]], false), Ok(true));
    assert!(try_receive(&*peer.link).expect("a head may be that long").is_some());
    // The client chooses the ring's size: here one with records far over the server's limit.
    let listener = Listener::bind(&fresh("shm"), &Options::default()).expect("bind");
    let (segment, fd) = Segment::create(16 << 20).expect("memory");
    let socket = dial(listener.url());
    send_raw(&socket, &hello_message(&hello(16 << 20)), &[fd.as_fd()]).expect("sent");
    let link = accept(&listener, &Options { max_message: 1000, ..Options::default() }).expect("welcome");
    let (mut producer, _consumer) = segment.lanes();
    assert_eq!(producer.try_write(&[&vec![0; 2 << 20]], false), Ok(true));
    is_broken(&end_of(&*link), "the limit is 1000");
}

#[test]
fn unknown_bytes_on_the_rendezvous_socket_are_refused() {
    for byte in [0, b'r', b'X', 255] {
        let peer = Hostile::new(&Options::default());
        send_raw(&peer.socket, &[b'B', byte], &[]).expect("sent");
        peer.is_refused("unknown");
    }
}

#[test]
fn an_announcement_may_come_in_pieces() {
    let mut peer = Hostile::new(&Options::default());
    let fd = memfd(1 << 16, true);
    send_raw(&peer.socket, b"BBR\x09", &[fd.as_fd()]).expect("sent");
    assert!(readable(signal_fd(&*peer.link), PATIENCE));
    signalled(&peer.link).expect("not all of it is here");
    send_raw(&peer.socket, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, b'B'], &[]).expect("sent");
    peer.note(9, 100, false);
    assert_eq!(receive(&*peer.link).expect("a frame").len(), 100);
}

#[test]
fn a_flood_of_descriptors_is_refused() {
    let fd = memfd(4096, true);
    let peer = Hostile::new(&Options::default());
    for _ in 0..10 {
        // Descriptors with bells, which need none.
        if send_raw(&peer.socket, b"B", &[fd.as_fd(); 4]).is_err() {
            break;
        }
    }
    peer.is_refused("nobody asked for");
    let peer = Hostile::new(&Options::default());
    for id in 0..100 {
        peer.announce(id, 4096, Some(&fd));
    }
    let end = Instant::now() + PATIENCE;
    let error = loop {
        // A poller reads whenever there is something.
        assert!(readable(signal_fd(&*peer.link), end - Instant::now()));
        if let Err(error) = signalled(&peer.link) {
            break error;
        }
    };
    is_broken(&error, "does not use");
}

#[test]
fn a_flood_of_bells_keeps_nobody() {
    let mut peer = Hostile::new(&Options::default());
    let over = Arc::new(AtomicBool::new(false));
    let ringing = std::thread::spawn({
        let (over, mut socket) = (Arc::clone(&over), peer.socket.try_clone().expect("a clone"));
        move || {
            while !over.load(Ordering::Acquire) && socket.write(&[b'B'; 4096]).is_ok() {}
        }
    });
    for number in 0..200 {
        assert_eq!(peer.producer.try_write(&[&item_head(), &pattern(number, 100)], false), Ok(true));
        signalled(&peer.link).expect("open");
        assert_eq!(receive(&*peer.link).expect("a frame"), pattern(number, 100));
        let deadline = Instant::now() + Duration::from_millis(1);
        assert!(next_frame(&*peer.link, Some(deadline)).expect("open").is_none());
    }
    over.store(true, Ordering::Release);
    peer.link.close();
    ringing.join().expect("no panic");
}

#[test]
fn a_region_announced_and_the_peer_dead_is_still_read() {
    let mut peer = Hostile::new(&Options::default());
    let fd = memfd(1 << 16, true);
    for id in 0..3 {
        peer.announce(id, 1 << 16, Some(&fd));
        peer.note(id, 100, true);
    }
    peer.socket.shutdown(Shutdown::Both).expect("open");
    let Hostile { link, .. } = peer;
    for _ in 0..3 {
        let incoming = next_frame(&*link, None).expect("sent before the end").expect("a frame");
        assert_eq!(whole(&incoming).len(), 100);
    }
    assert_eq!(end_of(&*link), LinkError::Closed);
}

/// What a server answers to a client with these bytes: its sentence, or nothing if the server saw the client hang up.
fn greeted(url: &Url, listener: &Listener, bytes: &[u8], fds: &[&OwnedFd]) -> Option<String> {
    let mut socket = dial(url);
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    if !bytes.is_empty() {
        send_raw(&socket, bytes, &fds).expect("sent");
    }
    socket.shutdown(Shutdown::Write).expect("open");
    let refused = accept(listener, &Options::default()).expect_err("a stranger");
    if let Some(why) = &refused {
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("an answer");
        let preamble = answer.first_chunk().expect("a preamble");
        assert_eq!(Preamble::decode(preamble), Ok(Preamble::Reject(why.len())));
        assert_eq!(&answer[Preamble::LEN..], why.as_bytes(), "both sides say the same");
    }
    refused
}

#[test]
fn strangers_are_turned_away_with_a_sentence() {
    let listener = Listener::bind(&fresh("shm"), &Options::default()).expect("bind");
    let url = listener.url().clone();
    let good = hello_message(&hello(RING));
    for cut in [0, 1, 4, 11, 12, 13, good.len() - 1] {
        assert_eq!(greeted(&url, &listener, &good[..cut], &[]), None, "cut at {cut}: there is nobody to tell");
    }
    let ring = memfd(Segment::size(RING) as u64, true);
    let mut version = good.clone();
    version[4] = PROTOCOL + 1;
    let huge = [&MAGIC[..], &[PROTOCOL, 1, 0, 0], &(1_u32 << 20).to_le_bytes()].concat();
    let welcome = [&MAGIC[..], &[PROTOCOL, 2, 0, 0], &4_u32.to_le_bytes(), b"null"].concat();
    let json = [&MAGIC[..], &[PROTOCOL, 1, 0, 0], &4_u32.to_le_bytes(), b"nope"].concat();
    let deep = [&Preamble::Hello(60_000).encode()[..], &vec![b'['; 60_000]].concat();
    let pipe: OwnedFd = std::io::pipe().expect("a pipe").0.into();
    let unsealed = memfd(Segment::size(RING) as u64, false);
    let odd = hello_message(&hello(RING + 8));
    let cases: [(&[u8], &[&OwnedFd], &str); 13] = [
        (b"SSH-2.0-OpenSSH_9.6\r\n", &[], "does not speak nearcall"),
        (&[0; 100], &[], "does not speak nearcall"),
        (&version, &[], "version 2"),
        (&huge, &[], "too many"),
        (&welcome, &[], "no hello"),
        (&json, &[], "hello cannot be read"),
        (&deep, &[], "hello cannot be read"),
        (&good, &[], "sent no shared memory"),
        (&good, &[&pipe], "not shared memory"),
        (&good, &[&unsealed], "not sealed"),
        (&odd, &[&ring], "impossible ring size"),
        (&hello_message(&hello(1 << 17)), &[&ring], "size it announced"),
        (&good, &[&ring, &ring], "more than one descriptor"),
    ];
    for (bytes, fds, hint) in cases {
        let why = greeted(&url, &listener, bytes, fds).expect("a sentence");
        assert!(why.contains(hint), "{hint:?} expected, got {why:?}");
    }
}

#[test]
fn a_client_of_http_is_answered_by_http() {
    let listener = Listener::bind(&fresh("shm"), &Options::default()).expect("bind");
    let mut socket = dial(&listener.url().clone());
    send_raw(&socket, b"GET / HTTP/1.1\r\nhost: example.org\r\n\r\n", &[]).expect("sent");
    let why = accept(&listener, &Options::default()).expect_err("a stranger").expect("a sentence");
    assert!(why.contains("and not HTTP; for browsers and curl serve http+unix://"), "{why:?}");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer:?}");
    assert!(answer.ends_with(&format!("\r\n\r\n{why}\n")), "{answer:?}");
}

/// A server that sends these bytes to one client.
fn answers(bytes: Vec<u8>, hang_up: bool) -> (Url, std::thread::JoinHandle<()>) {
    let url = fresh("unix");
    let path = &socket_path(&url);
    let listener = UnixListener::bind(path).expect("bind");
    let path = path.clone();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        std::fs::remove_file(path).expect("ours");
        // The client may have given up already.
        let _ = socket.write_all(&bytes);
        if hang_up {
            let _ = socket.shutdown(Shutdown::Write);
        }
        // Until the client is gone.
        let _ = socket.read_to_end(&mut Vec::new());
    });
    (url, server)
}

#[test]
fn a_client_says_what_is_wrong_with_a_server() {
    let preamble = |kind: Preamble| kind.encode().to_vec();
    let mut version = preamble(Preamble::Welcome(0));
    version[4] = 9;
    let garbled = [&preamble(Preamble::Welcome(4))[..], b"nope"].concat();
    let reject = [&preamble(Preamble::Reject(10))[..], b"go away \xff!"].concat();
    for (bytes, hang_up, hint) in [
        (vec![], true, "hung up during the handshake"),
        (preamble(Preamble::Welcome(10))[..7].to_vec(), true, "hung up during the handshake"),
        (preamble(Preamble::Welcome(10)), true, "hung up during the handshake"),
        (vec![], false, "in time"),
        (preamble(Preamble::Welcome(16 << 20)), false, "in time"),
        (b"HTTP/1.1 400 Bad Request".to_vec(), false, "does not speak nearcall"),
        (version, false, "version 9"),
        (garbled, false, "welcome cannot be read"),
        (reject, false, "refused: go away"),
        (preamble(Preamble::Hello(0)), false, "is a client"),
    ] {
        let (url, server) = answers(bytes, hang_up);
        // Only the server that sends nothing more is to be given up.
        let patience = if hint == "in time" { Duration::from_millis(200) } else { PATIENCE };
        let options = Options { handshake: patience, ..Options::default() };
        let begun = Instant::now();
        let error = connect(&url, "test", &options).expect_err("no server").to_string();
        assert!(error.contains(hint) && error.contains(&url.to_string()), "{hint:?} expected, got {error:?}");
        assert!(begun.elapsed() < PATIENCE / 2);
        server.join().expect("no panic");
    }
}

#[test]
fn a_server_that_accepts_nobody_is_not_waited_for_longer_than_asked() {
    let url = fresh("unix");
    let path = &socket_path(&url);
    let listener = UnixListener::bind(path).expect("bind");
    rustix::net::listen(&listener, 0).expect("a queue for one");
    let _queued = UnixStream::connect(path).expect("the one");
    let options = Options { handshake: Duration::from_millis(200), ..Options::default() };
    let begun = Instant::now();
    let error = connect(&url, "test", &options).expect_err("the queue is full");
    assert!(matches!(&error, ConnectError::TimedOut(why) if why.contains("accepts no clients")), "{error:?}");
    assert!(begun.elapsed() >= Duration::from_millis(200) && begun.elapsed() < PATIENCE / 2);
    std::fs::remove_file(path).expect("ours");
}

#[test]
fn half_a_frame_counts_as_what_it_takes_until_the_rest_comes() {
    let listener = Listener::bind(&fresh("unix"), &Options::default()).expect("bind");
    let mut socket = dial(listener.url());
    socket.write_all(&hello_message(&hello(0))).expect("sent");
    let link = accept(&listener, &Options::default()).expect("welcome");
    // Few bytes get memory of their own; with many the buffer stays that they were read into.
    for (len, half, kept) in [(2_000, 3, 3), (2_000, 1_500, 1_500), (60_000, 40_000, 64 << 10)] {
        let body = pattern(len, len);
        let frame = [&((len + item_head().len()) as u32).to_le_bytes(), &item_head()[..], &body].concat();
        for before in [&[][..], &frame] {
            socket.write_all(&[before, &frame[..half]].concat()).expect("sent");
            if !before.is_empty() {
                assert_eq!(receive(&*link).expect("a frame"), body);
            }
            until("it counts", || {
                assert!(try_receive(&*link).expect("open").is_none());
                link.kept() == kept
            });
            socket.write_all(&frame[half..]).expect("sent");
            assert_eq!(receive(&*link).expect("a frame"), body);
            assert_eq!(link.kept(), 0);
        }
    }
}

/// Bytes on a stream give frames or an error, but never a panic, and few bytes never take much memory.
#[test]
fn a_frame_announced_and_not_sent_costs_nothing() {
    let resident = || -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc");
        statm.split(' ').nth(1).expect("pages").parse::<usize>().expect("a number") * 4096
    };
    let listener = Listener::bind(&fresh("unix"), &Options::default()).expect("bind");
    let before = resident();
    let links: Vec<_> = (0..8)
        .map(|_| {
            let mut socket = dial(listener.url());
            socket.write_all(&hello_message(&hello(0))).expect("sent");
            let link = accept(&listener, &Options::default()).expect("welcome");
            socket.write_all(&(64_u32 << 20).to_le_bytes()).expect("sent");
            until("it arrives", || link.spin());
            assert!(try_receive(&*link).expect("open").is_none());
            (link, socket)
        })
        .collect();
    assert!(resident() < before + (64 << 20), "eight frames of 64 MiB that never came");
    drop(links);
    let mut socket = dial(listener.url());
    socket.write_all(&hello_message(&hello(0))).expect("sent");
    let link = accept(&listener, &Options { max_message: u64::MAX, ..Options::default() }).expect("welcome");
    socket.write_all(&[&[11, 0, 0, 0], &item_head()[..], &[1, 2, 3]].concat()).expect("sent");
    assert_eq!(receive(&*link).expect("no limit is a limit, too"), [1, 2, 3]);
    let mut socket = dial(listener.url());
    socket.write_all(&hello_message(&hello(0))).expect("sent");
    let link = accept(&listener, &Options { max_message: 10, ..Options::default() }).expect("welcome");
    socket.write_all(&u32::MAX.to_le_bytes()).expect("sent");
    is_broken(&end_of(&*link), "the limit is 10");
}

#[test]
fn a_welcome_that_is_not_read_is_not_waited_for() {
    let listener = Listener::bind(&fresh("unix"), &Options::default()).expect("bind");
    let mut socket = dial(listener.url());
    send_raw(&socket, &hello_message(&hello(0)), &[]).expect("sent");
    let options = Options::default();
    assert!(readable(listening_fd(&listener), PATIENCE));
    let mut opening = listener.accept().expect("accept").expect("a client").opening;
    let mut welcome = common::welcome(&options);
    welcome.description = " ".repeat(8 << 20);
    assert_eq!(opening.advance(&welcome, &options), Ok(false), "it does not fit into the socket");
    assert_eq!(opening.awaits(), Awaits { arrivals: false, room: true }, "the client is welcomed");
    let reader = std::thread::spawn(move || {
        let mut preamble = [0; Preamble::LEN];
        socket.read_exact(&mut preamble).expect("a preamble");
        let Ok(Preamble::Welcome(len)) = Preamble::decode(&preamble) else { panic!("no welcome") };
        let mut body = vec![0; len];
        socket.read_exact(&mut body).expect("a welcome");
        body
    });
    let end = Instant::now() + PATIENCE;
    while !opening.advance(&welcome, &options).expect("the client is there") {
        assert!(Instant::now() < end, "the client reads, but its welcome is not sent");
        std::thread::yield_now();
    }
    assert_eq!(reader.join().expect("read"), welcome.encode());
    assert!(opening.into_link(&options).is_some());
}

/// HTTP/2's frame that begins a request. The request's message is still to come.
fn request(stream: u32) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a.B/C"),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect();
    [&[0, 0, block.len() as u8, 1, 4], &stream.to_be_bytes()[..], &block].concat()
}

/// A few bytes of a request may stand for headers of 64 KiB, which take time to process.
#[test]
fn others_have_their_turns_between_requests_that_do_not_begin() {
    const REQUESTS: u32 = 1000;
    let options = Options::default();
    let listener = Listener::bind(&fresh("grpc+unix"), &options).expect("bind");
    let mut socket = dial(listener.url());
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
    let requests: Vec<u8> = (0..REQUESTS).flat_map(|number| request(2 * number + 1)).collect();
    socket.write_all(&requests).expect("there is room");
    let mut opening = listener.accept().expect("accept").expect("a client").opening;
    while !opening.advance(&welcome(&options), &options).expect("it greets") {}
    let link = opening.into_link(&options).expect("it has greeted");
    let mut turns = 0;
    loop {
        match next_part(&*link) {
            Err(LinkError::Unfinished) => turns += 1,
            Ok(None) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(turns >= REQUESTS / 100, "{turns} turns");
}

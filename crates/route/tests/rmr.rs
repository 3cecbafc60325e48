//! The sockets over which programs of RMR are spoken with, against peers that keep the rules and peers that do not.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nearcall_core::client::Passed;
use nearcall_core::lock::Mutex;
use nearcall_route::rmr::frame::{Fields, Frame, TRANSPORT, places};
use nearcall_route::rmr::{Exchange, Limits, Link, Outlet, Sink};

const FIELDS: Fields<'_> = Fields {
    kind: 1000,
    subscription: -1,
    transaction: b"t",
    entity: b"",
    trace: b"",
    call: 0,
    source: b"a:1",
    source_address: b"",
};

fn message(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    FIELDS.write(payload.len(), &mut |bytes| out.extend_from_slice(bytes));
    out.extend(payload);
    out
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "it takes too long: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Keeps the payloads that come, while there is room.
#[derive(Clone, Default)]
struct Kept {
    payloads: Arc<Mutex<Vec<Vec<u8>>>>,
    full: Arc<AtomicBool>,
}

impl Sink for Kept {
    fn take(&self, frame: &Frame<'_>, _: &Arc<Outlet>) -> bool {
        let has_room = !self.full.load(Ordering::SeqCst);
        if has_room {
            self.payloads.lock().push(frame.payload().to_vec());
        }
        has_room
    }
}

struct Served {
    exchange: Arc<Exchange>,
    kept: Kept,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(limits: Limits) -> Self {
        let kept = Kept::default();
        let exchange = Exchange::new(limits, Box::new(kept.clone())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        exchange.listen(listener).unwrap();
        let worker = Arc::clone(&exchange);
        let thread = Some(std::thread::spawn(move || worker.work()));
        Self { exchange, kept, address, thread }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    fn link(&self, to: SocketAddr) -> Arc<Link> {
        Link::new(Arc::clone(&self.exchange), &to.to_string(), false)
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        self.kept.payloads.lock().clone()
    }

    /// Somebody who keeps the rules is served.
    fn still_serves(&self) {
        let before = self.payloads().len();
        self.connect().write_all(&message(b"honest")).unwrap();
        until("an honest message", || self.payloads().len() == before + 1);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.exchange.close();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn small() -> Limits {
    Limits { message: 100_000, connections: 8, unfinished: 400_000, stall: Duration::from_secs(60) }
}

#[test]
fn messages_arrive_however_they_are_cut() {
    let served = Served::new(small());
    let mut peer = served.connect();
    let sent = [message(b"one"), message(&vec![7; 60_000]), message(b"")].concat();
    for piece in sent.chunks(997) {
        peer.write_all(piece).unwrap();
    }
    until("three messages", || served.payloads().len() == 3);
    assert_eq!(served.payloads(), [b"one".to_vec(), vec![7; 60_000], vec![]]);
    assert_eq!(served.exchange.counts().broken, 0);
}

#[test]
fn who_breaks_a_rule_loses_the_connection_and_is_counted() {
    let served = Served::new(small());
    let wrong = |place: usize, value: i32| {
        let mut bytes = message(b"hello");
        bytes[TRANSPORT + place..][..4].copy_from_slice(&value.to_be_bytes());
        bytes
    };
    let length = |len: i32| [&len.to_ne_bytes()[..], &len.to_be_bytes(), b"$"].concat();
    let attacks = [
        length(0),
        length(-1),
        length(i32::MIN),
        length(i32::MAX),
        length(100_001),
        length(265),
        vec![0xff; 4096],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        wrong(places::PAYLOAD_LENGTH, 6),
        wrong(places::PAYLOAD_LENGTH, -1),
        wrong(places::TRACE_LENGTH, i32::MAX),
        wrong(places::DATA_1_LENGTH, 1000),
        wrong(places::DATA_2_LENGTH, i32::MIN),
        wrong(places::HEADER_LENGTH, 0),
        wrong(places::VERSION, 1),
    ];
    for (number, attack) in attacks.iter().enumerate() {
        let mut peer = served.connect();
        peer.write_all(attack).unwrap();
        // The end, or an error: the connection is gone.
        assert!(matches!(peer.read(&mut [0; 1]), Ok(0) | Err(_)), "attack {number}");
        until("it is counted", || served.exchange.counts().broken == number as u64 + 1);
    }
    served.still_serves();
    assert_eq!(served.payloads().len(), 1);
}

#[test]
fn a_message_that_never_ends_is_given_up() {
    let served = Served::new(Limits { stall: Duration::from_millis(20), ..small() });
    let mut peer = served.connect();
    peer.write_all(&message(b"hello")[..200]).unwrap();
    until("it is counted", || served.exchange.counts().broken == 1);
    assert!(matches!(peer.read(&mut [0; 1]), Ok(0) | Err(_)));
    served.still_serves();
}

#[test]
fn what_all_peers_leave_unfinished_is_bounded() {
    let served = Served::new(Limits { unfinished: 150_000, ..small() });
    let unfinished = &message(&vec![0; 80_000])[..70_000];
    let peers: Vec<_> = (0..4).map(|_| served.connect()).collect();
    for mut peer in &peers {
        // A connection that is closed meanwhile says so.
        let _ = peer.write_all(unfinished);
    }
    until("two are closed", || served.exchange.counts().broken == 2);
    assert_eq!(served.exchange.counts().connections, 2);
    served.still_serves();
}

#[test]
fn too_many_connections_are_refused() {
    let served = Served::new(Limits { connections: 2, ..small() });
    let peers = [served.connect(), served.connect()];
    until("both are there", || served.exchange.counts().connections == 2);
    assert!(matches!(served.connect().read(&mut [0; 1]), Ok(0) | Err(_)));
    until("it is counted", || served.exchange.counts().refused == 1);
    drop(peers);
    until("they have left", || served.exchange.counts().connections == 0);
    served.still_serves();
}

#[test]
fn without_room_nothing_is_lost_and_nothing_more_is_read() {
    let served = Served::new(small());
    served.kept.full.store(true, Ordering::SeqCst);
    let mut peer = served.connect();
    let sender = std::thread::spawn(move || {
        for number in 0..2000_u32 {
            let mut payload = vec![0; 5000];
            payload[..4].copy_from_slice(&number.to_be_bytes());
            peer.write_all(&message(&payload)).unwrap();
        }
    });
    until("the connection", || served.exchange.counts().connections == 1);
    assert!(served.payloads().is_empty());
    served.kept.full.store(false, Ordering::SeqCst);
    // Whoever makes room says so, until the exchange has heard of it.
    until("all messages", || {
        served.exchange.room();
        served.payloads().len() == 2000
    });
    sender.join().unwrap();
    let numbers: Vec<u32> =
        served.payloads().iter().map(|payload| u32::from_be_bytes(payload[..4].try_into().unwrap())).collect();
    assert!(numbers.is_sorted());
}

#[test]
fn a_link_sends_what_the_other_side_does_not_read_yet() {
    let (served, other) = (Served::new(small()), Served::new(small()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let link = served.link(listener.local_addr().unwrap());
    let outlet = link.connect().unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let (first, payload) = (message(&vec![1; 90_000]), message(&vec![2; 90_000]));
    let mut sent = 0;
    // It is full when a message did not go at all; the one before may have gone in part.
    while outlet.send(&[&first, &payload], None).unwrap() != Passed::NoRoom {
        sent += 1;
    }
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; sent * 2 * first.len()];
        peer.read_exact(&mut all).unwrap();
        (all, peer)
    });
    let (all, peer) = reader.join().unwrap();
    assert_eq!(all.len() % message(&vec![1; 90_000]).len(), 0);
    assert!(all.ends_with(&vec![2; 90_000]));
    // A reply may come over the same connection.
    (&peer).write_all(&message(b"reply")).unwrap();
    until("the reply", || served.payloads() == [b"reply"]);
    drop(peer);
    until("the end is seen", || link.current().is_none());
    assert!(outlet.send(&[b"x", b""], None).is_err());
    // And from one exchange to another.
    let mut yes = || true;
    let outlet = served.link(other.address).connect().unwrap();
    for _ in 0..100 {
        outlet.send(&[&message(&vec![3; 50_000]), b""], Some(&mut yes)).unwrap();
    }
    until("a hundred messages", || other.payloads().len() == 100);
}

#[test]
fn nobody_is_dialled_on_other_machines_unasked() {
    let served = Served::new(small());
    let link = Link::new(Arc::clone(&served.exchange), "192.0.2.1:4560", false);
    assert!(link.connect().unwrap_err().to_string().contains("allow_plaintext=True"));
}

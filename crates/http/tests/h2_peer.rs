//! Both roles against the crate `h2` as the peer: everything that one side sends arrives at the other, with any
//! division into reads and windows of any size. All in memory, driven by hand, without a runtime.
#![allow(clippy::unwrap_used, reason = "in tests")]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::{RecvStream, SendStream, client, server};
use http::{HeaderMap, Request, Response};
use nearcall_http::{Call, Compressing, Encoding, Ending, Event, Head, Options, Outcome, Session};
use nearcall_wire::Metadata;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Numbers that look random and are the same each time (xorshift, Marsaglia 2003).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn bytes(&mut self, longest: usize) -> Vec<u8> {
        let len = self.below(longest + 1);
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// A message: mostly short, sometimes longer than a frame or a window.
    fn message(&mut self) -> Vec<u8> {
        let longest = [10, 300, 20_000, 200_000][self.below(4)];
        self.bytes(longest)
    }

    fn text(&mut self, longest: usize) -> String {
        let len = self.below(longest) + 1;
        (0..len).map(|_| (b'!' + self.below(94) as u8) as char).collect()
    }
}

type Bytewise = Rc<RefCell<VecDeque<u8>>>;

/// One end of a connection in memory, which reads and writes any number of bytes at a time.
#[derive(Clone)]
struct End {
    incoming: Bytewise,
    outgoing: Bytewise,
    random: Rc<RefCell<Random>>,
}

fn connection(seed: u64) -> (End, End) {
    let (one, other) = (Bytewise::default(), Bytewise::default());
    let random = Rc::new(RefCell::new(Random::new(seed)));
    let end = |incoming: &Bytewise, outgoing: &Bytewise| End {
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
        random: Rc::clone(&random),
    };
    (end(&one, &other), end(&other, &one))
}

impl Read for End {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = self.random.borrow_mut().below(into.len().min(30_000)) + 1;
        match self.incoming.borrow_mut().read(&mut into[..most])? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.random.borrow_mut().below(bytes.len().min(30_000)) + 1;
        self.outgoing.borrow_mut().write(&bytes[..most])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.read(into.initialize_unfilled()) {
            Ok(len) => into.advance(len),
            Err(_) => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    for message in messages {
        body.push(0);
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(message);
    }
    body
}

fn options() -> Options {
    Options { stream_window: 70_000, connection_window: 100_000, send_queue: 50_000, ..Options::default() }
}

/// Pairs of which some recur and some do not, some too long for one frame.
fn metadata(random: &mut Random) -> Vec<(String, String)> {
    (0..random.below(6))
        .map(|at| {
            let longest = if random.below(20) == 0 { 20_000 } else { 60 };
            (format!("x-{at}{}", ["", "-more"][random.below(2)]), random.text(longest))
        })
        .collect()
}

/// Polls h2's future once. It must not fail.
fn drive(connection: &mut Pin<&mut impl Future<Output = Result<(), h2::Error>>>, context: &mut Context<'_>) {
    if let Poll::Ready(end) = connection.as_mut().poll(context) {
        end.expect("h2 is content");
    }
}

fn ready<T>(mut step: impl FnMut() -> Option<T>) -> T {
    (0..100_000).find_map(|_| step()).expect("both sides wait for each other")
}

/// A server that sends back all messages, the request's metadata as trailers, and a message in the status.
fn echo(session: &mut Session, end: &mut End, kept: &mut HashMap<u32, Metadata>) {
    while let Ok(nearcall_http::Filled::Some(_)) = session.fill(end) {
        loop {
            let mut todo: Option<(u32, Vec<u8>, usize)> = None;
            let mut finished = None;
            match session.next_event().expect("h2 breaks no rule") {
                None => break,
                Some(Event::Request { stream, request, ended }) => {
                    assert!(!ended);
                    assert_eq!((request.path(), request.codec()), ("/a.B/c", Some("proto")));
                    kept.insert(stream, request.metadata().unwrap().unwrap_or_default());
                }
                Some(Event::Message { stream, message, cost, ended, .. }) => {
                    todo = Some((stream, message.into_owned(), cost));
                    finished = ended.then_some(stream);
                }
                Some(Event::Ended { stream, ending: Ending::Plain }) => finished = Some(stream),
                Some(Event::Room { .. }) => {}
                Some(other) => panic!("{other:?}"),
            }
            if let Some((stream, message, cost)) = todo {
                session.release(stream, cost);
                let (first, second) = message.split_at(message.len() / 3);
                session.send_message(stream, &[first, second], Compressing::No).unwrap();
            }
            if let Some(stream) = finished {
                let trailers = kept.remove(&stream).unwrap();
                let outcome = Outcome { message: "übrig 100%", metadata: Some(&trailers), ..Outcome::default() };
                session.send_status(stream, &outcome).unwrap();
            }
        }
    }
    session.flush(end).unwrap();
}

fn collected(body: &mut RecvStream, into: &mut Vec<u8>, context: &mut Context<'_>) -> Option<HeaderMap> {
    while let Poll::Ready(Some(data)) = body.poll_data(context) {
        let data = data.expect("the stream is good");
        into.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    match body.poll_trailers(context) {
        Poll::Ready(trailers) => Some(trailers.expect("the stream is good").unwrap_or_default()),
        Poll::Pending => None,
    }
}

fn pairs_of(headers: &HeaderMap) -> Vec<(String, String)> {
    let pair =
        |(name, value): (&http::HeaderName, &http::HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
    let mut all: Vec<_> = headers.iter().map(pair).filter(|(name, _)| name.starts_with("x-")).collect();
    all.sort();
    all
}

fn send(stream: &mut SendStream<Bytes>, body: &mut Bytes, context: &mut Context<'_>) -> bool {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        match stream.poll_capacity(context) {
            Poll::Ready(Some(Ok(room))) => stream.send_data(body.split_to(room.min(body.len())), false).unwrap(),
            _ => return false,
        }
    }
    true
}

#[test]
fn a_server_answers_h2() {
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        let mut context = Context::from_waker(Waker::noop());
        let (mut ours, theirs) = connection(seed);
        let (mut session, mut kept) = (Session::server(options()), HashMap::new());
        let mut builder = client::Builder::new();
        builder.initial_window_size([300, 5000, 65_535][random.below(3)]);
        builder.header_table_size([0, 100, 4096, 100_000][random.below(4)]).max_header_list_size(1 << 20);
        let mut handshake = pin!(builder.handshake::<_, Bytes>(theirs));
        let (mut requests, connection) = ready(|| {
            echo(&mut session, &mut ours, &mut kept);
            match handshake.as_mut().poll(&mut context) {
                Poll::Ready(done) => Some(done.unwrap()),
                Poll::Pending => None,
            }
        });
        let mut connection = pin!(connection);
        for _ in 0..5 {
            let mut calls = Vec::new();
            for _ in 0..=random.below(20) {
                let messages: Vec<_> = (0..random.below(4)).map(|_| random.message()).collect();
                let mut pairs = metadata(&mut random);
                let mut request = Request::post("http://there/a.B/c").header("content-type", "application/grpc");
                for (name, value) in &pairs {
                    request = request.header(name, value);
                }
                ready(|| {
                    drive(&mut connection, &mut context);
                    echo(&mut session, &mut ours, &mut kept);
                    matches!(requests.poll_ready(&mut context), Poll::Ready(Ok(()))).then_some(())
                });
                let (response, stream) = requests.send_request(request.body(()).unwrap(), false).unwrap();
                pairs.sort();
                let body = Bytes::from(framed(&messages));
                calls.push((Some(response), stream, body.clone(), body, pairs, None, Vec::new(), false));
            }
            ready(|| {
                drive(&mut connection, &mut context);
                echo(&mut session, &mut ours, &mut kept);
                calls.retain_mut(|(response, stream, rest, sent, pairs, body, got, has_ended)| {
                    if !*has_ended && send(stream, rest, &mut context) {
                        stream.send_data(Bytes::new(), true).unwrap();
                        *has_ended = true;
                    }
                    let here = response.as_mut().map(|waited| pin!(waited).as_mut().poll(&mut context));
                    if let Some(Poll::Ready(here)) = here {
                        *body = Some(here.unwrap().into_body());
                        *response = None;
                    }
                    let Some(body) = body else { return true };
                    let trailers = collected(body, got, &mut context);
                    // A call without messages has its status in the headers.
                    let Some(trailers) = trailers else { return true };
                    assert_eq!(got, sent);
                    if !sent.is_empty() {
                        assert_eq!(trailers["grpc-status"], "0");
                        assert_eq!(trailers["grpc-message"], "%C3%BCbrig 100%25");
                        assert_eq!(&pairs_of(&trailers), pairs);
                    }
                    false
                });
                calls.is_empty().then_some(())
            });
        }
        assert_eq!((session.streams(), session.waiting()), (0, 0), "seed {seed}");
    }
}

/// A call as the client sees it.
struct Calling {
    messages: Vec<Vec<u8>>,
    pairs: Vec<(String, String)>,
    got: Vec<Vec<u8>>,
    has_head: bool,
}

/// A server by h2 that sends back the body and the metadata.
struct Echo {
    calls: Vec<(RecvStream, SendStream<Bytes>, Bytes, HeaderMap, bool)>,
}

impl Echo {
    fn run(&mut self, connection: &mut server::Connection<End, Bytes>, context: &mut Context<'_>) {
        while let Poll::Ready(Some(accepted)) = connection.poll_accept(context) {
            let (request, mut respond) = accepted.expect("the client breaks no rule");
            assert_eq!(request.uri().path(), "/a.B/c");
            assert_eq!(request.headers()["te"], "trailers");
            let mut response = Response::builder().header("content-type", "application/grpc+proto");
            let pairs: HeaderMap = request
                .headers()
                .iter()
                .filter(|(name, _)| name.as_str().starts_with("x-"))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect();
            for (name, value) in &pairs {
                response = response.header(name, value);
            }
            let stream = respond.send_response(response.body(()).unwrap(), false).unwrap();
            self.calls.push((request.into_body(), stream, Bytes::new(), pairs, false));
        }
        self.calls.retain_mut(|(body, stream, rest, pairs, has_ended)| {
            while send(stream, rest, context) && !*has_ended {
                match body.poll_data(context) {
                    Poll::Ready(Some(data)) => {
                        *rest = data.unwrap();
                        body.flow_control().release_capacity(rest.len()).unwrap();
                    }
                    Poll::Ready(None) => *has_ended = true,
                    Poll::Pending => return true,
                }
            }
            if !rest.is_empty() || !*has_ended {
                return true;
            }
            pairs.insert("grpc-status", "5".parse().unwrap());
            pairs.insert("grpc-message", "nicht %C3%BCbrig".parse().unwrap());
            pairs.insert("grpc-status-details-bin", "AP8".parse().unwrap());
            stream.send_trailers(std::mem::take(pairs)).unwrap();
            false
        });
    }
}

fn metadata_of(pairs: &[(String, String)]) -> Metadata {
    let mut metadata = Metadata::default();
    for (key, value) in pairs {
        metadata.push(key, value.as_bytes());
    }
    metadata
}

fn sorted(metadata: Option<Metadata>) -> Vec<(String, String)> {
    let metadata = metadata.unwrap_or_default();
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    let mut all: Vec<_> = metadata.pairs().iter().map(|(key, value)| (key.clone(), text(value))).collect();
    all.sort();
    all
}

/// Processes what has arrived at the client, and removes the calls that are over.
fn take(session: &mut Session, end: &mut End, calls: &mut HashMap<u32, Calling>) {
    while let Ok(nearcall_http::Filled::Some(_)) = session.fill(end) {
        loop {
            let mut released = None;
            match session.next_event().expect("h2 breaks no rule") {
                None => break,
                Some(Event::Response { stream, response }) => {
                    let call = calls.get_mut(&stream).unwrap();
                    assert_eq!(sorted(response.metadata().unwrap()), call.pairs);
                    call.has_head = true;
                }
                Some(Event::Message { stream, message, cost, .. }) => {
                    calls.get_mut(&stream).unwrap().got.push(message.into_owned());
                    released = Some((stream, cost));
                }
                Some(Event::Ended { stream, ending: Ending::Status { code, message, details, metadata } }) => {
                    let call = calls.remove(&stream).unwrap();
                    assert!(call.has_head && call.got == call.messages);
                    assert_eq!((code, message.as_str(), &details[..]), (5, "nicht übrig", &[0, 255][..]));
                    assert_eq!(sorted(metadata), call.pairs);
                }
                Some(Event::Room { .. } | Event::StreamsFree) => {}
                Some(other) => panic!("{other:?}"),
            }
            if let Some((stream, cost)) = released {
                session.release(stream, cost);
            }
        }
    }
    session.flush(end).unwrap();
}

#[test]
fn a_client_calls_h2() {
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        let mut context = Context::from_waker(Waker::noop());
        let (mut ours, theirs) = connection(seed);
        let mut session = Session::client(options());
        let mut builder = server::Builder::new();
        builder.initial_window_size([300, 5000, 65_535][random.below(3)]).max_header_list_size(1 << 20);
        // h2's default limit would end connections with many small frames.
        builder.max_concurrent_streams(50).header_table_size([0, 100, 4096][random.below(3)]);
        let mut handshake = pin!(builder.handshake::<_, Bytes>(theirs));
        let (mut calls, mut peer) = (HashMap::new(), Echo { calls: Vec::new() });
        let mut connection = ready(|| {
            take(&mut session, &mut ours, &mut calls);
            match handshake.as_mut().poll(&mut context) {
                Poll::Ready(done) => Some(done.unwrap()),
                Poll::Pending => None,
            }
        });
        for _ in 0..5 {
            for _ in 0..=random.below(20) {
                let messages: Vec<_> = (0..random.below(4)).map(|_| random.message()).collect();
                let mut pairs = metadata(&mut random);
                let metadata = metadata_of(&pairs);
                let call = Call {
                    path: "/a.B/c",
                    authority: "there:1",
                    is_secure: false,
                    codec: "",
                    timeout: Some(std::time::Duration::from_secs(9)),
                    encoding: Some(Encoding::Gzip),
                    metadata: Some(&metadata),
                    user_agent: "",
                };
                let id = session.begin(&call).unwrap();
                for message in &messages {
                    session.send_message(id, &[message], Compressing::No).unwrap();
                }
                session.end(id).unwrap();
                pairs.sort();
                calls.insert(id, Calling { messages, pairs, got: Vec::new(), has_head: false });
            }
            ready(|| {
                take(&mut session, &mut ours, &mut calls);
                peer.run(&mut connection, &mut context);
                calls.is_empty().then_some(())
            });
        }
        assert_eq!((session.streams(), session.waiting()), (0, 0), "seed {seed}");
    }
}

#[test]
fn a_head_of_a_response_reaches_h2() {
    let mut context = Context::from_waker(Waker::noop());
    let (mut ours, theirs) = connection(7);
    let mut session = Session::server(options());
    let mut handshake = pin!(client::handshake(theirs));
    let (mut requests, connection) = ready(|| {
        session.flush(&mut ours).unwrap();
        match handshake.as_mut().poll(&mut context) {
            Poll::Ready(done) => Some(done.unwrap()),
            Poll::Pending => None,
        }
    });
    let mut connection = pin!(connection);
    let request = Request::post("http://there/x").header("content-type", "application/grpc").body(()).unwrap();
    let (response, _stream): (_, SendStream<Bytes>) = requests.send_request(request, false).unwrap();
    let mut response = pin!(response);
    let response = ready(|| {
        drive(&mut connection, &mut context);
        let _ = session.fill(&mut ours);
        let begun = match session.next_event().unwrap() {
            Some(Event::Request { stream, .. }) => Some(stream),
            _ => None,
        };
        if let Some(stream) = begun {
            let metadata = metadata_of(&[("x-1".to_owned(), "one".to_owned()), ("y-bin".to_owned(), "two".to_owned())]);
            session.send_head(stream, &Head { metadata: Some(&metadata), compress: true }).unwrap();
        }
        session.flush(&mut ours).unwrap();
        match response.as_mut().poll(&mut context) {
            Poll::Ready(response) => Some(response.unwrap()),
            Poll::Pending => None,
        }
    });
    assert_eq!(response.headers()["x-1"], "one");
    assert_eq!(response.headers()["y-bin"], "dHdv");
    assert!(response.headers().get("grpc-encoding").is_none(), "the client has not said what it accepts");
}

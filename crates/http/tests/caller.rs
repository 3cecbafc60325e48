//! Calls of Connect between this crate's client and server, over both versions of HTTP; and malicious servers against a
//! client of HTTP/1.1.

use nearcall_http::{
    Asked, Asks, Call, Caller, Calls, Code, Codec, Compressing, Connection as _, Encoding, Ending, Event, Http1,
    Http1Client, LimitName, Options, Origins, Outcome, Protocol, Reply, RequestHead, Requests, SendError, Session,
    Shape,
};
use nearcall_wire::Metadata;

const OPTIONS: Options = Options {
    max_message: 50_000,
    limit: LimitName::PLAIN,
    max_concurrent_streams: 10,
    stream_window: 65_535,
    connection_window: 65_535,
    max_header_list: 4000,
    send_queue: 1000,
    encoding: None,
    useless_burst: 20,
    useless_per_second: 0,
};

const UNARY: Shape = Shape { streams_in: false, streams_out: false, is_safe: true };
const STREAM: Shape = Shape { streams_in: true, streams_out: true, is_safe: false };

/// What a client learns of one call.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    head: Option<Metadata>,
    messages: Vec<Vec<u8>>,
    code: Option<u8>,
    message: String,
    details: Vec<u8>,
    trailers: Option<Metadata>,
}

/// A client, and a server that sends each message back with a description of its request.
struct Pair<C, S> {
    client: C,
    server: S,
    calls: Vec<(u32, Reply, Vec<String>)>,
    /// A description of each request: its method, and whether the body was compressed.
    seen: Vec<String>,
}

impl<C: Requests, S: Calls> Pair<C, S> {
    fn new(client: C, server: S) -> Self {
        Self { client, server, calls: Vec::new(), seen: Vec::new() }
    }

    fn carry(&mut self) {
        let bytes = self.client.unsent().to_vec();
        self.client.sent(bytes.len());
        feed(&mut self.server, &bytes);
        self.serve();
        let bytes = self.server.unsent().to_vec();
        self.server.sent(bytes.len());
        feed(&mut self.client, &bytes);
    }

    fn serve(&mut self) {
        let origins = Origins::default();
        loop {
            let mut done = None;
            match self.server.next_event().expect("a good client") {
                None => return,
                Some(Event::Request { stream, request, ended }) => {
                    let fields = ["content-encoding", "connect-content-encoding", "connect-timeout-ms"];
                    let said = fields.iter().filter_map(|name| request.header(name));
                    let said: Vec<_> = said.map(|value| String::from_utf8_lossy(value).into_owned()).collect();
                    let path = request.path().split('?').next().unwrap_or_default().to_owned();
                    self.seen.push(format!("{} {path} {}", request.method(), said.join(" ")));
                    let mut asked = Asked::read(request, &origins, S::IS_HTTP2, OPTIONS.max_message).expect("a call");
                    assert!(matches!(asked.protocol, Protocol::Connect | Protocol::ConnectStream));
                    asked.reads.into_iter().for_each(|reads| self.server.read_as(stream, reads));
                    let mut reply = Reply::to(&asked, Some(Encoding::Gzip));
                    let head = nearcall_http::Head { metadata: asked.metadata.as_ref(), compress: true };
                    reply.head(&mut self.server, stream, &head).expect("fresh");
                    if let Some(message) = asked.by_get.take() {
                        reply
                            .message(&mut self.server, stream, &[&message], Compressing::IfShorter, &mut |_| 0)
                            .expect("open");
                        done = Some(stream);
                    }
                    self.calls.push((stream, reply, vec![path]));
                    done = done.or(ended.then_some(stream));
                }
                Some(Event::Message { stream, message, cost, ended, .. }) => {
                    let message = message.into_owned();
                    self.server.release(stream, cost);
                    let (_, reply, _) = self.calls.iter_mut().find(|(id, ..)| *id == stream).expect("its call");
                    reply
                        .message(&mut self.server, stream, &[&message], Compressing::IfShorter, &mut |_| 0)
                        .expect("open");
                    done = ended.then_some(stream);
                }
                Some(Event::Ended { stream, .. }) => done = Some(stream),
                Some(Event::Data { stream, cost, .. }) => self.server.release(stream, cost),
                Some(_) => {}
            }
            if let Some(at) = done.and_then(|stream| self.calls.iter().position(|(id, ..)| *id == stream)) {
                let (stream, mut reply, said) = self.calls.remove(at);
                let fails = said[0].ends_with("Fail");
                let details = b"\x1a\x1c\x0a\x17type.googleapis.com/a.B\x12\x01\xff";
                let mut tail = Metadata::default();
                tail.push("x-tail", b"last");
                tail.push("x-tail-bin", &[0, 255]);
                let outcome = if fails {
                    Outcome { code: 5, message: "no \"such\"", details, metadata: Some(&tail) }
                } else {
                    Outcome { metadata: Some(&tail), ..Outcome::default() }
                };
                reply.end(&mut self.server, stream, &outcome).expect("open");
            }
        }
    }

    /// Makes a call with all its messages, and returns what the client learns.
    fn call(&mut self, asks: Asks, shape: Shape, call: &Call<'_>, messages: &[&[u8]]) -> Heard {
        let (first, rest) = messages.split_first().map_or((None, messages), |(first, rest)| (Some(*first), rest));
        let pieces = first.map(|first| [first]);
        let first = pieces.as_ref().map(|pieces| &pieces[..]);
        let begun = Caller::begin(&mut self.client, asks, shape, call, first, Compressing::IfShorter, &mut |_| 0);
        let (id, mut caller) = begun.expect("there is room");
        for message in rest {
            caller.message(&mut self.client, id, &[message], Compressing::IfShorter, false, &mut |_| 0).expect("open");
        }
        if shape.streams_in {
            self.client.end(id).expect("open");
        }
        let mut heard = Heard::default();
        for _ in 0..100 {
            self.carry();
            while let Some(event) = self.client.next_event().expect("a good server") {
                let mut over = None;
                match event {
                    Event::Response { response, .. } => {
                        let opened = caller.opened(response).expect("as it was asked for");
                        heard.head = opened.metadata;
                        opened.reads.into_iter().for_each(|reads| self.client.read_as(id, reads));
                    }
                    Event::Message { message, cost, ended, .. } => {
                        if caller.takes(&message) {
                            heard.messages.push(message.into_owned());
                        }
                        self.client.release(id, cost);
                        over = ended.then_some(Ending::Plain);
                    }
                    Event::Ended { ending, .. } => over = Some(ending),
                    Event::Refused { code, why, .. } => panic!("{code} {why}"),
                    _ => {}
                }
                if let Some(ending) = over {
                    let Ending::Status { code, message, details, metadata } = caller.ended(ending) else {
                        panic!("it is one")
                    };
                    (heard.code, heard.message, heard.details, heard.trailers) =
                        (Some(code), message, details, metadata);
                    return heard;
                }
            }
        }
        panic!("no end: {heard:?}");
    }
}

/// Feeds bytes in small parts.
fn feed(to: &mut impl nearcall_http::Connection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let space = to.space();
        let len = space.len().min(bytes.len()).min(37);
        space[..len].copy_from_slice(&bytes[..len]);
        to.arrived(len);
        bytes = &bytes[len..];
    }
}

fn all_ways(asks: Asks, check: impl Fn(&mut dyn FnMut(Shape, &Call<'_>, &[&[u8]]) -> Heard, &dyn Fn() -> String)) {
    let seen = std::cell::RefCell::new(String::new());
    let last = || seen.borrow().clone();
    let mut pair = Pair::new(Http1Client::new(OPTIONS), Http1::new(OPTIONS, false));
    check(
        &mut |shape, call, messages| {
            let heard = pair.call(asks, shape, call, messages);
            seen.replace(pair.seen.last().cloned().unwrap_or_default());
            heard
        },
        &last,
    );
    let mut pair = Pair::new(Session::client(OPTIONS), Session::server(OPTIONS));
    pair.carry();
    check(
        &mut |shape, call, messages| {
            let heard = pair.call(asks, shape, call, messages);
            seen.replace(pair.seen.last().cloned().unwrap_or_default());
            heard
        },
        &last,
    );
}

fn to(path: &str) -> Call<'_> {
    Call { path, authority: "there", user_agent: "test", ..Call::default() }
}

fn tail() -> Metadata {
    let mut tail = Metadata::default();
    tail.push("x-tail", b"last");
    tail.push("x-tail-bin", &[0, 255]);
    tail
}

#[test]
fn calls_go_there_and_back() {
    for codec in [Codec::Proto, Codec::Json] {
        all_ways(Asks::Connect { codec, by_get: false }, |call, seen| {
            for message in [&b""[..], b"{}", &[7; 15_000]] {
                let heard = call(UNARY, &to("/a.B/Echo"), &[message]);
                assert_eq!((heard.code, &heard.messages.concat()[..]), (Some(0), message));
                assert_eq!(heard.trailers, Some(tail()));
            }
            assert_eq!(seen(), "POST /a.B/Echo ");
            let heard = call(STREAM, &to("/a.B/Echo"), &[b"one", b"", &[7; 15_000]]);
            assert_eq!(heard.messages, [b"one".to_vec(), vec![], vec![7; 15_000]]);
            assert_eq!((heard.code, heard.trailers), (Some(0), Some(tail())));
            let heard = call(STREAM, &to("/a.B/Echo"), &[]);
            assert_eq!((heard.code, heard.messages.len()), (Some(0), 0));
        });
    }
}

#[test]
fn failures_come_with_details_and_metadata() {
    let mut own = Metadata::default();
    own.push("x-word", b"hello");
    own.push("x-bytes-bin", &[0, 1, 255]);
    all_ways(Asks::Connect { codec: Codec::Proto, by_get: false }, |call, _| {
        for shape in [UNARY, STREAM] {
            let heard = call(shape, &Call { metadata: Some(&own), ..to("/a.B/Fail") }, &[b"x"]);
            assert_eq!((heard.code, &*heard.message), (Some(5), "no \"such\""));
            assert_eq!(heard.details, b"\x1a\x1c\x0a\x17type.googleapis.com/a.B\x12\x01\xff");
            assert_eq!(heard.trailers, Some(tail()));
            let head = heard.head.expect("it was sent");
            assert!(own.pairs().iter().all(|pair| head.pairs().contains(pair)), "{head:?}");
        }
    });
}

#[test]
fn deadlines_and_compression_are_said() {
    let seconds = std::time::Duration::from_millis(1500);
    let packed = Call { encoding: Some(Encoding::Gzip), timeout: Some(seconds), ..to("/a.B/Echo") };
    all_ways(Asks::Connect { codec: Codec::Proto, by_get: false }, |call, seen| {
        assert_eq!(call(UNARY, &packed, &[&[7; 15_000]]).messages, [vec![7; 15_000]]);
        assert_eq!(seen(), "POST /a.B/Echo gzip 1500");
        // Compression would make this message longer.
        assert_eq!(call(UNARY, &packed, &[b"x"]).messages, [b"x"]);
        assert_eq!(seen(), "POST /a.B/Echo 1500");
        assert_eq!(call(STREAM, &packed, &[&[7; 15_000], b"x"]).messages, [vec![7; 15_000], b"x".to_vec()]);
        assert_eq!(seen(), "POST /a.B/Echo gzip 1500");
    });
}

#[test]
fn what_changes_nothing_is_asked_by_get_if_it_is_short() {
    for codec in [Codec::Proto, Codec::Json] {
        all_ways(Asks::Connect { codec, by_get: true }, |call, seen| {
            for message in [&b""[..], b"{\"a b\": \"+&=%\"}", &[0, 255]] {
                assert_eq!(call(UNARY, &to("/a.B/Echo"), &[message]).messages.concat(), message);
                assert_eq!(seen(), "GET /a.B/Echo ");
            }
            assert_eq!(call(UNARY, &to("/a.B/Echo"), &[&[7; 5000]]).messages, [vec![7; 5000]]);
            assert_eq!(seen(), "POST /a.B/Echo ");
            call(Shape { is_safe: false, ..UNARY }, &to("/a.B/Echo"), &[b"x"]);
            assert_eq!(seen(), "POST /a.B/Echo ");
        });
    }
}

const HEAD: RequestHead<'_> = RequestHead {
    method: "POST",
    path: "/a.B/C",
    authority: "there",
    is_secure: false,
    headers: &[("content-length", b"1")],
};

/// A client with a request under way.
fn asking() -> (Http1Client, u32) {
    let mut client = Http1Client::new(OPTIONS);
    let id = client.request(&HEAD, false).expect("it is fresh");
    client.send_data(id, &[b"x"], true, &mut |_| 0).expect("open");
    (client, id)
}

/// What a client learns from these bytes: `broken`, `refused`, `ended`, or nothing.
fn heard(bytes: &[u8]) -> &'static str {
    let (mut client, _) = asking();
    let mut heard = "nothing";
    for part in bytes.chunks(1) {
        client.feed(part);
        loop {
            match client.next_event() {
                Err(_) => return "broken",
                Ok(None) => break,
                Ok(Some(Event::Ended { .. } | Event::Data { ended: true, .. })) => heard = "ended",
                Ok(Some(Event::Refused { .. })) => return "refused",
                Ok(Some(_)) => {}
            }
        }
    }
    heard
}

#[test]
fn responses_that_could_be_read_in_two_ways_end_the_connection() {
    let ok = |more: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{more}\r\n\r\n{body}");
    for good in [
        ok("Content-Length: 2", "ab"),
        ok("Content-Length: 0", ""),
        ok("Transfer-Encoding: chunked", "2\r\nab\r\n0\r\n\r\n"),
        ok("Transfer-Encoding: chunked", "0\r\nx: y\r\n\r\n"),
        format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nx: y\r\n\r\n{}", ok("Content-Length: 0", "")),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx".to_owned(),
    ] {
        assert_eq!(heard(good.as_bytes()), "ended", "{good:?}");
    }
    for bad in [
        ok("Content-Length: 2\r\nTransfer-Encoding: chunked", "2\r\nab\r\n0\r\n\r\n"),
        ok("Content-Length: 2\r\nContent-Length: 2", "ab"),
        ok("Content-Length: 2\r\nContent-Length: 3", "ab"),
        ok("Content-Length: +2", "ab"),
        ok("Content-Length: 2, 2", "ab"),
        ok("Content-Length: 99999999999999999999", ""),
        ok("Transfer-Encoding: gzip, chunked", ""),
        ok("Transfer-Encoding: identity", "ab"),
        ok("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
        ok("Transfer-Encoding: chunked", "0x2\r\nab\r\n"),
        ok("Transfer-Encoding: chunked", "2\r\nabc"),
        ok("Transfer-Encoding: chunked", "2\nab\r\n"),
        ok("x: y", "it would end with the connection"),
        ok("Content-Length: 0\r\n folded: x", ""),
        ok("Content-Length : 0", ""),
        ok("x: a\rb", ""),
        ok("x: a\0b", ""),
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n".to_owned() + "\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "HTTP/2.0 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 20 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n".to_owned(),
        "SSH-2.0-x\r\n".to_owned(),
        "\r\nHTTP/1.1 200 OK\r\n\r\n".to_owned(),
        // A second response, which the next call would take for its own.
        ok("Content-Length: 0", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.1 100 Continue\r\n\r\n".repeat(100),
    ] {
        assert_eq!(heard(bad.as_bytes()), "broken", "{bad:?}");
    }
    assert_eq!(heard(ok(&"x: y\r\n".repeat(200), "").as_bytes()), "refused");
    assert_eq!(heard(ok(&format!("x: {}", "y".repeat(5000)), "").as_bytes()), "refused");
    assert_eq!(heard(ok("x", "").as_bytes()), "broken");
}

#[test]
fn one_request_is_under_way_at_a_time() {
    let (mut client, id) = asking();
    assert_eq!(client.request(&HEAD, false), Err(SendError::TooManyStreams));
    client.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let mut free = false;
    while let Some(event) = client.next_event().expect("good") {
        free |= matches!(event, Event::StreamsFree);
    }
    assert!(free, "who waits is told");
    let stream = RequestHead { headers: &[], ..HEAD };
    let next = client.request(&stream, false).expect("it is free");
    assert_ne!(next, id);
    assert_eq!(client.request(&HEAD, false), Err(SendError::Occupied), "who reads a stream may wait for himself");
}

/// The events of a client, as text.
fn events(client: &mut Http1Client) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(event) = client.next_event().expect("good") {
        said.push(match event {
            Event::Response { response, .. } => format!("response {}", response.status()),
            Event::Ended { .. } => "ended".to_owned(),
            Event::GoAway { .. } => "goodbye".to_owned(),
            Event::StreamsFree => "free".to_owned(),
            other => format!("{other:?}"),
        });
    }
    said
}

#[test]
fn a_server_that_closes_gets_no_further_request() {
    for head in ["HTTP/1.1 200 OK\r\nConnection: close\r\n", "HTTP/1.0 200 OK\r\n"] {
        let (mut client, _) = asking();
        assert_eq!(client.request(&HEAD, false), Err(SendError::TooManyStreams));
        client.feed(format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
        assert_eq!(events(&mut client), ["response 200", "ended", "goodbye", "free"]);
        assert_eq!(client.request(&HEAD, false), Err(SendError::GoingAway));
        assert!(!client.is_cut());
    }
}

#[test]
fn what_is_given_up_takes_the_connection_with_it() {
    let (mut client, id) = asking();
    client.reset(id + 2, Code::CANCEL);
    assert!(!client.is_cut(), "that is another one");
    client.reset(id, Code::CANCEL);
    assert!(client.is_cut());
    assert_eq!(client.queued(), 0);
    client.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(events(&mut client), ["goodbye"]);
    assert_eq!(client.request(&HEAD, false), Err(SendError::GoingAway));
}

#[test]
fn a_response_before_the_end_of_its_request_is_the_last() {
    let mut client = Http1Client::new(OPTIONS);
    let stream = RequestHead { headers: &[], ..HEAD };
    let id = client.request(&stream, false).expect("it is fresh");
    client.send_data(id, &[b"half"], false, &mut |_| 0).expect("open");
    client.feed(b"HTTP/1.1 415 No\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(events(&mut client), ["response 415", "ended", "goodbye"]);
    assert!(client.is_cut());
    assert_eq!(client.send_data(id, &[b"more"], true, &mut |_| 0), Err(SendError::Gone));
}

#[test]
fn a_response_of_http_2_that_is_shorter_than_it_says_fails() {
    let (mut client, mut server) = (Session::client(OPTIONS), Session::server(OPTIONS));
    let carry = |from: &mut Session, to: &mut Session| {
        to.feed(from.unsent());
        from.sent(from.queued());
    };
    carry(&mut server, &mut client);
    assert!(client.next_event().expect("good").is_none());
    let id = client.request(&RequestHead { headers: &[], ..HEAD }, true).expect("it is fresh");
    carry(&mut client, &mut server);
    while let Some(event) = server.next_event().expect("good") {
        drop(event);
    }
    server.respond(id, 200, &[("content-length", b"5")], true).expect("open");
    carry(&mut server, &mut client);
    let event = client.next_event().expect("the connection goes on");
    assert!(matches!(event, Some(Event::Reset { code: Code::PROTOCOL_ERROR, .. })), "{event:?}");
}

//! HTTP/1.1 at a server: requests in any division, bodies in any framing, and malicious clients.

use nearcall_http::{
    Asked, Calls, Compressing, Connection as _, Event, Http1, LimitName, Options, Origins, Outcome, Reply,
};

const OPTIONS: Options = Options {
    max_message: 5000,
    limit: LimitName::PLAIN,
    max_concurrent_streams: 1,
    stream_window: 4096,
    connection_window: 65_535,
    max_header_list: 4000,
    send_queue: 1000,
    encoding: None,
    useless_burst: 20,
    useless_per_second: 0,
};

/// A server that answers each message with the same message.
struct Echo {
    session: Http1,
    origins: Origins,
    calls: Vec<(u32, Reply)>,
    /// Whether the server releases the messages that it has read.
    releases: bool,
    out: Vec<u8>,
}

impl Echo {
    fn new() -> Self {
        let (origins, calls, out) = (Origins::default(), Vec::new(), Vec::new());
        Self { session: Http1::new(OPTIONS, false), origins, calls, releases: true, out }
    }

    /// Processes the input. Whether the connection goes on.
    fn run(&mut self) -> bool {
        loop {
            let mut done = None;
            match self.session.next_event() {
                Err(_) => return false,
                Ok(None) => break,
                Ok(Some(Event::Request { stream, request, ended })) => {
                    match Asked::read(request, &self.origins, false, OPTIONS.max_message) {
                        Ok(asked) => {
                            let reply = Reply::to(&asked, None);
                            asked.reads.into_iter().for_each(|reads| self.session.read_as(stream, reads));
                            self.calls.push((stream, reply));
                            if ended {
                                done = Some((stream, 0));
                            }
                        }
                        Err(answer) => {
                            self.session
                                .answer(stream, answer.status, &answer.fields(), answer.body.as_bytes())
                                .expect("the call is there");
                        }
                    }
                }
                Ok(Some(Event::Message { stream, message, cost, ended, .. })) => {
                    let message = message.into_owned();
                    if self.releases {
                        self.session.release(stream, cost);
                    }
                    if let Some((_, reply)) = self.calls.iter_mut().find(|call| call.0 == stream) {
                        reply
                            .message(&mut self.session, stream, &[&message], Compressing::No, &mut |_| 0)
                            .expect("the call is there");
                    }
                    done = ended.then_some((stream, 0));
                }
                Ok(Some(Event::Ended { stream, .. })) => done = Some((stream, 0)),
                Ok(Some(Event::Refused { stream, code, .. })) => done = Some((stream, code)),
                Ok(Some(Event::Data { stream, cost, .. })) => self.session.release(stream, cost),
                Ok(Some(_)) => {}
            }
            if let Some((stream, code)) = done
                && let Some(at) = self.calls.iter().position(|call| call.0 == stream)
            {
                let (_, mut reply) = self.calls.remove(at);
                reply
                    .end(&mut self.session, stream, &Outcome { code, ..Outcome::default() })
                    .expect("the call is there");
            }
        }
        self.flush();
        true
    }

    fn flush(&mut self) {
        self.out.extend_from_slice(self.session.unsent());
        self.session.sent(self.session.queued());
    }

    /// The output for bytes that arrive in parts of this size.
    fn answers(bytes: &[u8], size: usize) -> String {
        let mut this = Self::new();
        for part in bytes.chunks(size) {
            this.session.feed(part);
            if !this.run() {
                this.flush();
                break;
            }
        }
        if this.session.is_finished() {
            this.out.extend_from_slice(b"<end>");
        }
        String::from_utf8_lossy(&this.out).into_owned()
    }
}

fn post(path: &str, more: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len())
}

const PROTO: &str = "Content-Type: application/proto\r\n";

/// The statuses of responses, in order.
fn statuses(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect()
}

#[test]
fn requests_are_answered_in_order_however_they_arrive() {
    let chunked = "POST /b HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\nTransfer-Encoding: chunked\r\n\r\n\
                   2\r\nse\r\n4;x=y\r\ncond\r\n0\r\nA: b\r\n\r\n";
    let all = [&post("/a", PROTO, "first"), chunked, "\r\n", &post("/c", PROTO, "")].concat();
    let whole = Echo::answers(all.as_bytes(), all.len());
    for size in 1..all.len() {
        assert_eq!(Echo::answers(all.as_bytes(), size), whole, "parts of {size}");
    }
    assert_eq!(statuses(&whole), ["200", "200", "200"]);
    let (first, second) = (whole.find("\r\n\r\nfirst"), whole.find("\r\n\r\nsecond"));
    assert!(first.is_some() && first < second, "{whole}");
    assert!(!whole.contains("close"), "{whole}");
}

#[test]
fn a_second_request_waits_until_the_first_is_answered() {
    let mut echo = Echo::new();
    let session = &mut echo.session;
    session.feed(post("/a", PROTO, "one").repeat(2).as_bytes());
    let first = match session.next_event() {
        Ok(Some(Event::Request { stream, .. })) => stream,
        other => panic!("{other:?}"),
    };
    assert!(matches!(session.next_event(), Ok(Some(Event::Data { .. }))));
    assert!(matches!(session.next_event(), Ok(None)), "the second one waits");
    session.answer(first, 204, &[], b"").expect("the call is there");
    assert!(matches!(session.next_event(), Ok(Some(Event::Request { stream, .. })) if stream != first));
    assert_eq!(session.answer(first, 204, &[], b""), Err(nearcall_http::SendError::Gone));
}

#[test]
fn a_stream_is_answered_message_by_message() {
    let mut body = Vec::new();
    for message in [&b"one"[..], b"", b"three"] {
        body.push(0);
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(message);
    }
    let head = format!(
        "POST /s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+proto\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let all = [head.as_bytes(), &body].concat();
    for size in [1, 3, 7, all.len()] {
        let answers = Echo::answers(&all, size);
        let chunks = [
            "8\r\n\0\0\0\0\x03one\r\n",
            "5\r\n\0\0\0\0\0\r\n",
            "a\r\n\0\0\0\0\x05three\r\n",
            "7\r\n\x02\0\0\0\x02{}\r\n0\r\n\r\n",
        ];
        assert!(answers.ends_with(&chunks.concat()), "{answers:?}");
        assert!(answers.contains("transfer-encoding: chunked"), "{answers:?}");
    }
}

#[test]
fn connections_end_when_either_side_says_so() {
    let two = |more: &str| Echo::answers(post("/a", &format!("{PROTO}{more}"), "x").repeat(2).as_bytes(), 1 << 20);
    assert_eq!(statuses(&two("")).len(), 2);
    let closed = two("Connection: close\r\n");
    assert_eq!(statuses(&closed).len(), 1);
    assert!(closed.contains("connection: close\r\n") && closed.ends_with("<end>"), "{closed}");
    let old = format!("POST /a HTTP/1.0\r\n{PROTO}Content-Length: 1\r\n\r\nx");
    assert!(Echo::answers(old.as_bytes(), 5).ends_with("x<end>"));

    let mut echo = Echo::new();
    echo.session.feed(post("/a", PROTO, "x").as_bytes());
    echo.session.drain_now();
    assert!(echo.run() && echo.session.is_finished());
    assert!(String::from_utf8_lossy(&echo.out).contains("connection: close"));
    let mut idle = Echo::new();
    idle.session.drain();
    assert!(!idle.session.is_finished(), "a request may be on its way");
    idle.session.drain_now();
    assert!(idle.session.is_finished());
    let mut late = Echo::new();
    late.session.drain();
    late.session.feed(post("/a", PROTO, "x").repeat(2).as_bytes());
    assert!(late.run() && late.session.is_finished());
    let answers = String::from_utf8_lossy(&late.out).into_owned();
    assert!(statuses(&answers).len() == 1 && answers.contains("connection: close"), "{answers}");
}

#[test]
fn a_client_is_told_to_send_its_body_if_it_is_wanted() {
    let waiting = format!("POST /a HTTP/1.1\r\nHost: x\r\n{PROTO}Expect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    let mut echo = Echo::new();
    echo.session.feed(waiting.as_bytes());
    assert!(echo.run());
    assert_eq!(echo.out, b"HTTP/1.1 100 Continue\r\n\r\n");
    echo.session.feed(b"x");
    assert!(echo.run());
    assert!(String::from_utf8_lossy(&echo.out).ends_with("\r\n\r\nx"));
    // It is unknown whether a body follows the refusal.
    let refused = Echo::answers(waiting.replace("/proto", "/no").as_bytes(), 1000);
    assert_eq!(statuses(&refused), ["415"]);
    assert!(refused.ends_with("<end>"), "{refused}");
}

#[test]
fn what_is_no_request_is_answered_and_ends_the_connection() {
    for (bytes, status) in [
        ("GET /\r\n\r\n".to_owned(), "400"),
        ("NCAL\0\0\0\x01\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "400"),
        (format!("GET /{} HTTP/1.1", "x".repeat(5000)), "414"),
        (format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(5000)), "431"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "x: y\r\n".repeat(200)), "431"),
    ] {
        // A reader with other rules might take the rest for a request.
        let all = format!("{bytes}{}", post("/a", PROTO, "smuggled"));
        for size in [1, 100, all.len()] {
            let answers = Echo::answers(all.as_bytes(), size);
            assert_eq!(statuses(&answers), [status], "{bytes:?}: {answers}");
            assert!(answers.contains("connection: close") && answers.ends_with("<end>"), "{answers}");
            assert!(!answers.contains("smuggled"));
        }
    }
}

#[test]
fn a_body_in_bad_chunks_fails_its_call_and_ends_the_connection() {
    for bad in ["x\r\n", "2\r\nabc\r\n", "1\nx", "123456789\r\n", "0\r\nx\ny\r\n\r\n"] {
        let all = format!(
            "POST /b HTTP/1.1\r\nHost: x\r\n{PROTO}Transfer-Encoding: chunked\r\n\r\n{bad}{}",
            post("/a", PROTO, "smuggled")
        );
        let answers = Echo::answers(all.as_bytes(), 10);
        assert_eq!(statuses(&answers), ["400"], "{bad:?}: {answers}");
        assert!(answers.ends_with("<end>") && !answers.contains("smuggled"), "{answers}");
    }
}

#[test]
fn a_message_over_the_limit_is_refused_and_its_rest_not_waited_for_without_end() {
    let short = Echo::answers(post("/a", PROTO, &"x".repeat(6000)).repeat(2).as_bytes(), 100);
    assert_eq!(statuses(&short), ["429", "429"], "a little more than wanted is read");
    let mut echo = Echo::new();
    echo.session.feed(format!("POST /a HTTP/1.1\r\nHost: x\r\n{PROTO}Content-Length: 99999999999\r\n\r\n").as_bytes());
    echo.session.feed(&[b'x'; 6000]);
    assert!(echo.run());
    assert!(echo.session.is_finished(), "{}", String::from_utf8_lossy(&echo.out));
    // Further bytes are read for a while, so that the client does not lose the answer.
    let goes_on = (0..400).take_while(|_| {
        echo.session.feed(&[b'x'; 4096]);
        echo.run()
    });
    assert!((60..80).contains(&goes_on.count()));
}

#[test]
fn little_is_read_of_what_nobody_takes() {
    let feed = |echo: &mut Echo, bytes: &[u8]| {
        let mut fed = 0;
        while echo.session.takes_more() && fed < 1 << 20 {
            echo.session.feed(bytes);
            fed += bytes.len();
            while let Ok(Some(_)) = echo.session.next_event() {}
        }
        fed
    };
    // Bytes behind a request that is not answered.
    let mut echo = Echo::new();
    assert!(feed(&mut echo, post("/a", PROTO, "x").as_bytes()) < 64 << 10);
    assert!(echo.session.held() < 128 << 10);
    // Bytes of a stream whose messages wait.
    let mut echo = Echo::new();
    echo.releases = false;
    echo.session.feed(
        b"POST /s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+proto\r\nContent-Length: 10000000\r\n\r\n",
    );
    assert!(echo.run());
    let mut fed = 0;
    while echo.session.takes_more() && fed < 1 << 20 {
        echo.session.feed(&[&[0, 0, 0, 0, 100][..], &[7; 100]].concat());
        fed += 105;
        assert!(echo.run());
    }
    assert!(fed < 8 << 10, "{fed}");
    // Requests of a client that reads no answers.
    let mut session = Http1::new(OPTIONS, false);
    let mut fed = 0;
    while session.takes_more() && fed < 4 << 20 {
        session.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        fed += 27;
        while let Ok(Some(event)) = session.next_event() {
            let Event::Request { stream, .. } = event else { panic!("{event:?}") };
            session.answer(stream, 404, &[], &[b'x'; 100]).expect("the call is there");
        }
    }
    assert!(fed < 1 << 20 && session.queued() < 512 << 10, "{fed} {}", session.queued());
}

#[test]
fn a_flood_of_nothing_ends_the_connection() {
    let mut echo = Echo::new();
    echo.session.feed(&b"\r\n".repeat(30));
    assert!(!echo.run());
}

#[test]
fn a_sender_hears_when_there_is_room_again() {
    let mut echo = Echo::new();
    echo.session
        .feed(b"POST /s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+proto\r\nContent-Length: 100\r\n\r\n");
    let Ok(Some(Event::Request { stream, request, .. })) = echo.session.next_event() else { panic!() };
    let asked = Asked::read(request, &Origins::default(), false, 100).expect("a call");
    let mut reply = Reply::to(&asked, None);
    let mut sent = nearcall_http::Sent::Ready;
    while sent == nearcall_http::Sent::Ready {
        sent = reply
            .message(&mut echo.session, stream, &[&[0; 100]], Compressing::No, &mut |_| 0)
            .expect("the call is there");
    }
    echo.session.sent(echo.session.queued());
    assert!(matches!(echo.session.next_event(), Ok(Some(Event::Room { stream: other })) if other == stream));
}

//! Malicious peers, frame by frame.
#![allow(clippy::unwrap_used, reason = "in tests")]

use nearcall_http::{Code, Compressing, Event, Options, Outcome, Session};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// A literal field, not indexed.
fn field(name: &str, value: &str) -> Vec<u8> {
    assert!(name.len() < 127 && value.len() < 127);
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

/// `POST http /x` of gRPC's.
fn block() -> Vec<u8> {
    [&[0x83, 0x86][..], &field(":path", "/x"), &field("content-type", "application/grpc")].concat()
}

fn request(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, &block())
}

/// What a session found in the bytes: for example how many requests began, and the code that the connection ended with.
#[derive(Debug, PartialEq, Eq, Default)]
struct Made {
    requests: usize,
    messages: usize,
    resets: Vec<(u32, Code)>,
    refused: Vec<(u32, u8)>,
    end: Option<Code>,
}

fn look(session: &mut Session) -> Made {
    let mut made = Made::default();
    loop {
        match session.next_event() {
            Ok(None) => return made,
            Ok(Some(Event::Request { .. })) => made.requests += 1,
            Ok(Some(Event::Message { .. })) => made.messages += 1,
            Ok(Some(Event::Reset { stream, code, .. })) => made.resets.push((stream, code)),
            Ok(Some(Event::Refused { stream, code, .. })) => made.refused.push((stream, code)),
            Ok(Some(_)) => {}
            Err(broken) => {
                made.end = Some(broken.code);
                return made;
            }
        }
    }
}

fn greeted(options: Options) -> Session {
    let mut session = Session::server(options);
    session.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    session.feed(&frame(SETTINGS, 0, 0, &[]));
    assert_eq!(look(&mut session), Made::default());
    forget_output(&mut session);
    session
}

fn forget_output(session: &mut Session) {
    while session.queued() > 0 {
        session.sent(session.queued());
    }
}

fn after(bytes: &[Vec<u8>]) -> Made {
    let mut session = greeted(Options::default());
    session.feed(&bytes.concat());
    let made = look(&mut session);
    if let Some(code) = made.end {
        // The last frame gives the reason, and the session accepts nothing more.
        let sent = session.unsent().to_vec();
        let mut rest = &sent[..];
        let mut last = None;
        while let Some((head, more)) = rest.split_first_chunk::<9>() {
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            last = Some((head[3], more[..len].to_vec()));
            rest = &more[len..];
        }
        let (kind, payload) = last.expect("a goodbye");
        assert_eq!((kind, &payload[4..8]), (GOAWAY, &code.0.to_be_bytes()[..]));
        session.feed(&request(101, END_STREAM));
        assert_eq!(look(&mut session).end, Some(code));
    }
    made
}

fn code(bytes: &[Vec<u8>]) -> Option<Code> {
    after(bytes).end
}

#[test]
fn what_breaks_a_rule_ends_the_connection_with_its_code() {
    let one = || request(1, END_STREAM);
    let window = |stream, more: u32| frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    let settings = |name: u8, value: u32| frame(SETTINGS, 0, 0, &[&[0, name][..], &value.to_be_bytes()].concat());
    let too_long = [&[0, 0x40, 1, DATA, 0, 0, 0, 0, 1][..], &[0; 16]].concat();
    for (expected, bytes) in [
        (Code::FRAME_SIZE_ERROR, vec![too_long]),
        (Code::PROTOCOL_ERROR, vec![frame(DATA, 0, 0, b"x")]),
        (Code::PROTOCOL_ERROR, vec![frame(DATA, 0, 1, b"x")]),
        (Code::PROTOCOL_ERROR, vec![request(1, 0), frame(DATA, PADDED, 1, &[9, 0])]),
        (Code::FRAME_SIZE_ERROR, vec![request(1, 0), frame(DATA, PADDED, 1, &[])]),
        (Code::PROTOCOL_ERROR, vec![request(0, 0)]),
        (Code::PROTOCOL_ERROR, vec![request(2, 0)]),
        (Code::PROTOCOL_ERROR, vec![request(5, END_STREAM), request(3, END_STREAM)]),
        (Code::COMPRESSION_ERROR, vec![frame(HEADERS, END_HEADERS, 1, &[0x80])]),
        (Code::COMPRESSION_ERROR, vec![frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff])]),
        (Code::FRAME_SIZE_ERROR, vec![frame(HEADERS, END_HEADERS | 32, 1, &[0, 0, 0])]),
        (Code::PROTOCOL_ERROR, vec![frame(HEADERS, 0, 1, &block()), one()]),
        (Code::PROTOCOL_ERROR, vec![frame(HEADERS, 0, 1, &block()), frame(CONTINUATION, END_HEADERS, 3, &[])]),
        (Code::PROTOCOL_ERROR, vec![frame(CONTINUATION, END_HEADERS, 1, &[])]),
        (Code::PROTOCOL_ERROR, vec![frame(PRIORITY, 0, 0, &[0; 5])]),
        (Code::PROTOCOL_ERROR, vec![frame(RST_STREAM, 0, 0, &[0; 4])]),
        (Code::PROTOCOL_ERROR, vec![frame(RST_STREAM, 0, 1, &[0; 4])]),
        (Code::FRAME_SIZE_ERROR, vec![one(), frame(RST_STREAM, 0, 1, &[0; 3])]),
        (Code::PROTOCOL_ERROR, vec![frame(SETTINGS, 0, 1, &[])]),
        (Code::FRAME_SIZE_ERROR, vec![frame(SETTINGS, 0, 0, &[0; 5])]),
        (Code::FRAME_SIZE_ERROR, vec![frame(SETTINGS, 1, 0, &[0; 6])]),
        (Code::PROTOCOL_ERROR, vec![settings(2, 2)]),
        (Code::FLOW_CONTROL_ERROR, vec![settings(4, 1 << 31)]),
        (Code::PROTOCOL_ERROR, vec![settings(5, 16_383)]),
        (Code::PROTOCOL_ERROR, vec![settings(5, 1 << 24)]),
        (Code::PROTOCOL_ERROR, vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])]),
        (Code::FRAME_SIZE_ERROR, vec![frame(PING, 0, 0, &[0; 7])]),
        (Code::PROTOCOL_ERROR, vec![frame(PING, 0, 1, &[0; 8])]),
        (Code::FRAME_SIZE_ERROR, vec![frame(GOAWAY, 0, 0, &[0; 7])]),
        (Code::PROTOCOL_ERROR, vec![frame(GOAWAY, 0, 1, &[0; 8])]),
        (Code::FRAME_SIZE_ERROR, vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])]),
        (Code::PROTOCOL_ERROR, vec![window(0, 0)]),
        (Code::PROTOCOL_ERROR, vec![window(1, 1)]),
        (Code::FLOW_CONTROL_ERROR, vec![window(0, 0x7fff_ffff)]),
        (Code::FLOW_CONTROL_ERROR, vec![one(), window(1, 0x7fff_0000), settings(4, 0x7fff_ffff)]),
    ] {
        assert_eq!(code(&bytes), Some(expected), "{bytes:x?}");
    }
}

#[test]
fn what_breaks_a_rule_of_one_stream_ends_only_that() {
    let window = |stream, more: u32| frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    let with_length = [block(), field("content-length", "3")].concat();
    for (expected, bytes) in [
        (Code::STREAM_CLOSED, vec![request(1, END_STREAM), frame(DATA, 0, 1, b"x")]),
        (Code::STREAM_CLOSED, vec![request(1, END_STREAM), request(1, END_STREAM)]),
        (Code::PROTOCOL_ERROR, vec![request(1, 0), request(1, 0)]),
        (Code::PROTOCOL_ERROR, vec![request(1, 0), request(1, END_STREAM)]),
        (Code::PROTOCOL_ERROR, vec![request(1, 0), window(1, 0)]),
        (Code::FLOW_CONTROL_ERROR, vec![request(1, 0), window(1, 0x7fff_ffff)]),
        (Code::FRAME_SIZE_ERROR, vec![request(1, 0), frame(PRIORITY, 0, 1, &[0; 4])]),
        (Code::PROTOCOL_ERROR, vec![request(1, 0), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])]),
        (Code::PROTOCOL_ERROR, vec![frame(HEADERS, END_HEADERS, 1, &with_length), frame(DATA, END_STREAM, 1, b"xx")]),
        (Code::PROTOCOL_ERROR, vec![frame(HEADERS, END_HEADERS, 1, &with_length), frame(DATA, 0, 1, b"xxxx")]),
    ] {
        let all = [bytes.clone(), vec![request(3, END_STREAM)]].concat();
        let made = after(&all);
        assert_eq!((made.end, made.requests, &made.resets[..]), (None, 2, &[(1, expected)][..]), "{bytes:x?}");
    }
}

#[test]
fn what_comes_before_the_preface_is_not_http_2() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX", b"\x16\x03\x01"] {
        let mut session = Session::server(Options::default());
        session.feed(bytes);
        assert_eq!(look(&mut session).end, Some(Code::PROTOCOL_ERROR));
    }
    let mut session = Session::server(Options::default());
    session.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    session.feed(&frame(PING, 0, 0, &[0; 8]));
    assert_eq!(look(&mut session).end, Some(Code::PROTOCOL_ERROR), "settings come first");
}

/// Sends frames again and again, and reads all answers. Returns how the connection ended.
fn flood(mut next: impl FnMut(u32) -> Vec<u8>) -> (Option<Code>, usize) {
    let mut session = greeted(Options { useless_per_second: 0, ..Options::default() });
    let mut most = 0;
    for at in 0..50_000 {
        session.feed(&next(at));
        let made = look(&mut session);
        most = most.max(session.held() + session.queued() + session.waiting());
        if made.end.is_some() {
            return (made.end, most);
        }
        forget_output(&mut session);
    }
    (None, most)
}

type Flood = Box<dyn FnMut(u32) -> Vec<u8>>;

#[test]
fn floods_end_the_connection_and_cost_no_memory() {
    let begin = |at: u32| if at == 0 { request(1, 0) } else { Vec::new() };
    let floods: [(&str, Flood); 12] = [
        ("pings", Box::new(|_| frame(PING, 0, 0, &[0; 8]))),
        ("settings", Box::new(|at| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, at as u8]))),
        ("acknowledgements", Box::new(|_| frame(SETTINGS, 1, 0, &[]))),
        ("empty frames", Box::new(move |at| [begin(at), frame(DATA, 0, 1, &[])].concat())),
        ("padding", Box::new(move |at| [begin(at), frame(DATA, PADDED, 1, &[255; 256])].concat())),
        ("priorities", Box::new(|_| frame(PRIORITY, 0, 9, &[0; 5]))),
        ("windows", Box::new(move |at| [begin(at), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])].concat())),
        ("unknown frames", Box::new(|_| frame(77, 0, 0, &[0; 100]))),
        ("goodbyes", Box::new(|_| frame(GOAWAY, 0, 0, &[0; 8]))),
        ("rapid resets", Box::new(|at| [request(2 * at + 1, 0), frame(RST_STREAM, 0, 2 * at + 1, &[0; 4])].concat())),
        ("malformed requests", Box::new(|at| frame(HEADERS, END_HEADERS, 2 * at + 1, &field("A", "b")))),
        (
            "continuations",
            Box::new(|at| if at == 0 { frame(HEADERS, 0, 1, &[]) } else { frame(CONTINUATION, 0, 1, &[]) }),
        ),
    ];
    for (name, next) in floods {
        let (end, most) = flood(next);
        assert_eq!(end, Some(Code::ENHANCE_YOUR_CALM), "{name}");
        assert!(most < 128 << 10, "{name} made the session keep {most} bytes");
    }
}

#[test]
fn replies_that_nobody_reads_end_the_connection() {
    let mut session = greeted(Options { useless_burst: u32::MAX, ..Options::default() });
    for _ in 0..100_000 {
        session.feed(&frame(PING, 0, 0, &[0; 8]));
        let end = look(&mut session).end;
        assert!(session.queued() < 300 << 10);
        if end.is_some() {
            assert_eq!(end, Some(Code::ENHANCE_YOUR_CALM));
            return;
        }
    }
    panic!("it went on and on");
}

#[test]
fn a_client_that_also_works_may_cancel_and_ping() {
    let mut session = greeted(Options { useless_burst: 100, useless_per_second: 0, ..Options::default() });
    for at in 0..5000 {
        let (call, cancelled) = (4 * at + 1, 4 * at + 3);
        session.feed(&request(call, 0));
        session.feed(&frame(DATA, END_STREAM, call, &[0, 0, 0, 0, 1, 7]));
        session.feed(&request(cancelled, 0));
        session.feed(&frame(RST_STREAM, 0, cancelled, &[0, 0, 0, 8]));
        session.feed(&frame(PING, 0, 0, &[0; 8]));
        let made = look(&mut session);
        assert_eq!((made.requests, made.messages, made.end), (2, 1, None));
        session.forget(cancelled);
        session.send_message(call, &[b"x"], Compressing::No).unwrap();
        session.send_status(call, &Outcome::default()).unwrap();
        forget_output(&mut session);
    }
    assert_eq!(session.streams(), 0);
}

#[test]
fn who_cancels_quickly_has_no_more_work_done_than_who_waits() {
    let mut session = greeted(Options { max_concurrent_streams: 10, ..Options::default() });
    let mut begun = 0;
    for at in 0..1000 {
        session.feed(&request(2 * at + 1, 0));
        session.feed(&frame(RST_STREAM, 0, 2 * at + 1, &[0, 0, 0, 8]));
        begun += look(&mut session).requests;
    }
    assert_eq!((begun, session.streams()), (10, 10), "no handler has said that it is done");
    (0..1000).for_each(|at| session.forget(2 * at + 1));
    assert_eq!(session.streams(), 0);
}

#[test]
fn a_header_bomb_costs_its_request() {
    let mut session = greeted(Options::default());
    // One entry of 3,900 bytes, then named in every octet of four frames.
    let mut first = vec![0x40, 1, b'a', 0x7f, 0xbd, 0x1d];
    first.extend(std::iter::repeat_n(b'x', 3900));
    let bomb = vec![0xbe; 16_000];
    session.feed(&frame(HEADERS, 0, 1, &[block(), first].concat()));
    for at in 0..4 {
        session.feed(&frame(CONTINUATION, if at == 3 { END_HEADERS } else { 0 }, 1, &bomb));
    }
    assert_eq!(look(&mut session), Made::default());
    assert!(session.held() < 256 << 10, "{}", session.held());
    assert!(session.unsent().windows(11).any(|part| part == b"grpc-status"), "it is answered");
    // The table still agrees with the peer's.
    session.feed(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &[block(), vec![0xbe]].concat()));
    assert_eq!(look(&mut session).requests, 1);
    assert!(session.held() < 128 << 10, "{}", session.held());
}

#[test]
fn an_endless_header_block_ends_the_connection() {
    let mut session = greeted(Options::default());
    session.feed(&frame(HEADERS, 0, 1, &block()));
    for _ in 0..10 {
        session.feed(&frame(CONTINUATION, 0, 1, &[0; 16_384]));
        if let Some(code) = look(&mut session).end {
            assert_eq!(code, Code::ENHANCE_YOUR_CALM);
            return;
        }
    }
    panic!("it went on and on");
}

#[test]
fn more_than_a_window_is_not_taken() {
    let options = Options { stream_window: 65_535, connection_window: 1 << 20, ..Options::default() };
    let mut session = greeted(options);
    session.feed(&request(1, 0));
    // Short messages that are never released: no credit is granted beyond the window.
    let mut prefix = frame(DATA, 0, 1, &[0, 0, 0, 0, 1, 9].repeat(2000));
    for _ in 0..5 {
        session.feed(&prefix);
    }
    assert_eq!(look(&mut session).messages, 10_000);
    prefix.truncate(9 + 12_000);
    session.feed(&prefix);
    assert_eq!(look(&mut session).resets, [(1, Code::FLOW_CONTROL_ERROR)]);
    let mut session = greeted(Options { stream_window: 1 << 20, connection_window: 65_535, ..options });
    session.hold_credit(true);
    session.feed(&request(1, 0));
    (0..6).for_each(|_| session.feed(&prefix));
    assert_eq!(look(&mut session).end, Some(Code::FLOW_CONTROL_ERROR));
}

#[test]
fn half_messages_cost_what_was_sent_of_them() {
    let mut session = greeted(Options::default());
    for at in 0..500 {
        session.feed(&request(2 * at + 1, 0));
        // 64 MiB are announced, one byte comes.
        session.feed(&frame(DATA, 0, 2 * at + 1, &[0, 4, 0, 0, 0, 1]));
    }
    assert_eq!(look(&mut session).requests, 500);
    assert!(session.held() <= 500 * (64 << 10) + (128 << 10), "{}", session.held());
    session.feed(&frame(DATA, 0, 1, &[0; 16_000]));
    session.feed(&frame(DATA, END_STREAM, 3, &[]));
    assert_eq!(look(&mut session).refused, [(3, 13)], "it ended inside of a message");
    assert_eq!(session.longest_unfinished().map(|(stream, _)| stream % 2), Some(1));
    for at in 0..500 {
        session.reset(2 * at + 1, Code::CANCEL);
    }
    assert!(session.held() < 128 << 10, "{}", session.held());
}

#[test]
fn a_peer_that_opens_no_window_makes_its_replies_wait() {
    let mut session = greeted(Options::default());
    session.feed(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    session.feed(&request(1, END_STREAM));
    look(&mut session);
    forget_output(&mut session);
    session.send_message(1, &[&[7; 1000]], Compressing::No).unwrap();
    session.send_status(1, &Outcome::default()).unwrap();
    assert_eq!(session.waiting(), 1005);
    forget_output(&mut session);
    // The peer may open the window one byte at a time. The status follows the last byte.
    for _ in 0..1005 {
        session.feed(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]));
        assert_eq!(look(&mut session).end, None);
    }
    assert_eq!((session.waiting(), session.streams()), (0, 0));
    // A waiting reply is dropped with its stream.
    session.feed(&request(3, END_STREAM));
    look(&mut session);
    session.send_message(3, &[&[7; 1000]], Compressing::No).unwrap();
    session.feed(&frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]));
    look(&mut session);
    assert_eq!(session.waiting(), 0);
}

#[test]
fn streams_that_wait_for_the_connections_window_leave_nothing_behind() {
    let mut session = greeted(Options::default());
    for at in 0..2000 {
        let id = 2 * at + 1;
        session.feed(&request(id, END_STREAM));
        assert_eq!(look(&mut session).requests, 1);
        session.send_message(id, &[&[7; 10_000]], Compressing::No).unwrap();
        session.feed(&frame(RST_STREAM, 0, id, &[0, 0, 0, 8]));
        look(&mut session);
        session.forget(id);
        forget_output(&mut session);
    }
    assert_eq!((session.waiting(), session.streams()), (0, 0));
}

#[test]
fn a_stream_that_was_answered_needs_no_forgetting() {
    let mut session = greeted(Options::default());
    session.feed(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    session.feed(&request(1, END_STREAM));
    look(&mut session);
    session.send_message(1, &[b"it waits"], Compressing::No).unwrap();
    session.send_status(1, &Outcome::default()).unwrap();
    session.feed(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    assert_eq!((look(&mut session).resets, session.streams()), (vec![], 0));
}

#[test]
fn padding_is_no_part_of_a_message() {
    let mut session = greeted(Options::default());
    session.feed(&request(1, 0));
    let two = [0, 0, 0, 0, 1, b'a', 0, 0, 0, 0, 1, b'b'];
    session.feed(&frame(DATA, PADDED | END_STREAM, 1, &[&[3][..], &two, &[9; 3]].concat()));
    session.feed(&request(3, END_STREAM));
    let mut all = Vec::new();
    while let Some(event) = session.next_event().unwrap() {
        if let Event::Message { message, ended, .. } = event {
            all.push((message.to_vec(), ended));
        }
    }
    assert_eq!(all, [(b"a".to_vec(), false), (b"b".to_vec(), true)]);
}

#[test]
fn a_body_that_is_no_grpc_is_sent_in_parts() {
    for window in [0, 3] {
        let mut session = greeted(Options::default());
        session.feed(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, window]));
        session.feed(&request(1, END_STREAM));
        look(&mut session);
        forget_output(&mut session);
        assert!(session.send_data(1, &[b"too early"], false).is_err());
        session.respond(1, 200, &[("content-type", b"text/plain")], false).unwrap();
        session.send_data(1, &[b"a", b"b"], false).unwrap();
        session.send_data(1, &[b"c"], false).unwrap();
        session.send_data(1, &[], true).unwrap();
        session.feed(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 9]));
        look(&mut session);
        let sent = session.unsent();
        let expected = if window == 0 {
            frame(DATA, END_STREAM, 1, b"abc")
        } else {
            [frame(DATA, 0, 1, b"ab"), frame(DATA, 0, 1, b"c"), frame(DATA, END_STREAM, 1, b"")].concat()
        };
        assert!(sent.ends_with(&expected), "{sent:x?}");
        assert_eq!((session.streams(), session.waiting()), (0, 0));
        assert!(session.answer(1, 200, &[], b"late").is_err());
    }
}

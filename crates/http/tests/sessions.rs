//! A client's session and a server's session, connected in memory.
#![allow(clippy::unwrap_used, reason = "in tests")]

use nearcall_http::{
    Call, Code, Compressing, Encoding, Ending, Event, Head, Options, Outcome, SendError, Sent, Session, farewell,
    refusal,
};
use nearcall_wire::Metadata;

/// An event, without borrowed data.
#[derive(Debug, PartialEq, Eq, Clone)]
enum Seen {
    Request(u32, bool),
    Response(u32, Option<Metadata>),
    Message(u32, Vec<u8>, usize, bool),
    Data(u32, Vec<u8>, bool),
    Ended(u32, Ending),
    Refused(u32, u8, String),
    Reset(u32, Code, bool),
    Room(u32),
    StreamsFree,
    GoAway(u32, Code, String),
    Pong([u8; 8]),
}

fn events(session: &mut Session) -> Vec<Seen> {
    let mut all = Vec::new();
    while let Some(event) = session.next_event().expect("both sides keep to the rules") {
        all.push(match event {
            Event::Request { stream, ended, .. } => Seen::Request(stream, ended),
            Event::Response { stream, response } => Seen::Response(stream, response.metadata().unwrap()),
            Event::Message { stream, message, cost, ended, .. } => {
                Seen::Message(stream, message.into_owned(), cost, ended)
            }
            Event::Data { stream, data, ended, .. } => Seen::Data(stream, data.to_vec(), ended),
            Event::Ended { stream, ending } => Seen::Ended(stream, ending),
            Event::Refused { stream, code, why } => Seen::Refused(stream, code, why.into_owned()),
            Event::Reset { stream, code, unprocessed } => Seen::Reset(stream, code, unprocessed),
            Event::Room { stream } => Seen::Room(stream),
            Event::MayGoOn { stream } => panic!("nothing is held up of {stream}"),
            Event::StreamsFree => Seen::StreamsFree,
            Event::GoAway { last, code, why } => Seen::GoAway(last, code, why),
            Event::Pong(token) => Seen::Pong(token),
        });
    }
    all
}

/// Passes one side's output to the other side, and returns the events there.
fn carry(from: &mut Session, to: &mut Session) -> Vec<Seen> {
    let mut all = Vec::new();
    while from.queued() > 0 {
        let bytes = from.unsent().to_vec();
        from.sent(bytes.len());
        // In parts, as from a network.
        for part in bytes.chunks(10_000) {
            to.feed(part);
            all.extend(events(to));
        }
    }
    all
}

fn pair(client: Options, server: Options) -> (Session, Session) {
    let (mut client, mut server) = (Session::client(client), Session::server(server));
    assert!(carry(&mut client, &mut server).is_empty());
    assert!(carry(&mut server, &mut client).is_empty());
    assert!(carry(&mut client, &mut server).is_empty());
    (client, server)
}

fn usual() -> (Session, Session) {
    pair(Options::default(), Options::default())
}

const CALL: Call<'static> = Call {
    path: "/a.B/c",
    authority: "there",
    is_secure: false,
    codec: "",
    timeout: None,
    encoding: None,
    metadata: None,
    user_agent: "test",
};

fn status(code: u8, message: &str) -> Ending {
    Ending::Status { code, message: message.to_owned(), details: Vec::new(), metadata: None }
}

const OK: Outcome<'static> = Outcome { code: 0, message: "", details: &[], metadata: None };

#[test]
fn a_call_and_its_reply() {
    let (mut client, mut server) = usual();
    for id in [1, 3] {
        assert_eq!(client.begin(&CALL), Ok(id));
        client.send_last_message(id, &[b"hel", b"lo"], Compressing::No).unwrap();
        let seen = carry(&mut client, &mut server);
        assert_eq!(seen, [Seen::Request(id, false), Seen::Message(id, b"hello".to_vec(), 10, true)]);
        server.send_message(id, &[b"world"], Compressing::No).unwrap();
        server.send_status(id, &OK).unwrap();
        let seen = carry(&mut server, &mut client);
        assert_eq!(
            seen,
            [Seen::Response(id, None), Seen::Message(id, b"world".to_vec(), 10, false), Seen::Ended(id, status(0, ""))]
        );
        assert_eq!((client.streams(), server.streams()), (0, 0));
        assert_eq!(server.send_status(id, &OK), Err(SendError::Gone));
    }
}

#[test]
fn a_reply_names_the_codec_that_was_asked_in() {
    let (mut client, mut server) = usual();
    for (codec, expected) in [("", "application/grpc"), ("json", "application/grpc+json")] {
        let id = client.begin(&Call { codec, ..CALL }).unwrap();
        client.send_last_message(id, &[b""], Compressing::No).unwrap();
        carry(&mut client, &mut server);
        server.send_message(id, &[b""], Compressing::No).unwrap();
        let bytes = server.unsent().to_vec();
        server.sent(bytes.len());
        client.feed(&bytes);
        let answered = loop {
            if let Event::Response { response, .. } = client.next_event().unwrap().expect("a response") {
                break response.header("content-type").map(<[u8]>::to_vec);
            }
        };
        assert_eq!(answered.as_deref(), Some(expected.as_bytes()));
        server.send_status(id, &OK).unwrap();
        carry(&mut server, &mut client);
    }
}

#[test]
fn the_second_call_has_shorter_headers() {
    let (mut client, mut server) = usual();
    let mut lengths = Vec::new();
    for _ in 0..2 {
        let id = client.begin(&CALL).unwrap();
        client.send_last_message(id, &[b""], Compressing::No).unwrap();
        let there = client.queued();
        carry(&mut client, &mut server);
        server.send_message(id, &[b""], Compressing::No).unwrap();
        server.send_status(id, &OK).unwrap();
        lengths.push((there, server.queued()));
        carry(&mut server, &mut client);
    }
    // Nine bytes for each frame's head, one octet for each indexed field, five for an empty message.
    assert_eq!(lengths[1], (9 + 8 + 9 + 5, 9 + 3 + 9 + 5 + 9 + 1));
}

#[test]
fn a_status_alone_and_one_with_all_it_can_have() {
    let (mut client, mut server) = usual();
    let id = client.begin(&CALL).unwrap();
    client.end(id).unwrap();
    assert_eq!(carry(&mut client, &mut server), [Seen::Request(id, false), Seen::Ended(id, Ending::Plain)]);
    let mut metadata = Metadata::default();
    metadata.push("more", b"one");
    metadata.push("more", b"two");
    metadata.push("some-bin", &[0, 1, 2]);
    let outcome = Outcome { code: 16, message: "não", details: b"\x00\xff", metadata: Some(&metadata) };
    server.send_status(id, &outcome).unwrap();
    let ending =
        Ending::Status { code: 16, message: "não".into(), details: vec![0, 255], metadata: Some(metadata.clone()) };
    assert_eq!(carry(&mut server, &mut client), [Seen::Ended(id, ending)]);
}

#[test]
fn metadata_goes_both_ways_however_long() {
    let (mut client, mut server) = usual();
    let mut metadata = Metadata::default();
    metadata.push("long", &vec![b'x'; 40_000]);
    metadata.push("raw-bin", &(0..=255).collect::<Vec<_>>());
    let call = Call { metadata: Some(&metadata), ..CALL };
    let id = client.begin(&call).unwrap();
    client.end(id).unwrap();
    let bytes = client.unsent().to_vec();
    client.sent(bytes.len());
    server.feed(&bytes);
    match server.next_event().unwrap().unwrap() {
        Event::Request { request, .. } => {
            let got = request.metadata().unwrap().unwrap();
            assert_eq!(got.pairs()[..1], [("user-agent".to_owned(), b"test".to_vec())]);
            assert_eq!(got.pairs()[1..], *metadata.pairs());
        }
        other => panic!("{other:?}"),
    }
    server.send_head(id, &Head { metadata: Some(&metadata), compress: false }).unwrap();
    assert_eq!(carry(&mut server, &mut client), [Seen::Response(id, Some(metadata))]);
}

#[test]
fn metadata_that_http_cannot_carry_spares_connection_and_call() {
    let (mut client, mut server) = usual();
    let id = client.begin(&CALL).unwrap();
    client.end(id).unwrap();
    carry(&mut client, &mut server);
    let mut bad = Metadata::default();
    bad.push("Upper", b"x");
    assert!(matches!(client.begin(&Call { metadata: Some(&bad), ..CALL }), Err(SendError::Unfit(_))));
    assert!(matches!(client.begin(&Call { path: "/ü", ..CALL }), Err(SendError::Unfit(_))));
    assert!(matches!(server.send_status(id, &Outcome { metadata: Some(&bad), ..OK }), Err(SendError::Unfit(_))));
    let mut long = Metadata::default();
    long.push("x", &vec![b'x'; 70_000]);
    assert!(matches!(
        server.send_status(id, &Outcome { metadata: Some(&long), ..OK }),
        Err(SendError::TooMuchMetadata { .. })
    ));
    server.send_status(id, &OK).unwrap();
    assert_eq!(carry(&mut server, &mut client), [Seen::Ended(id, status(0, ""))]);
}

#[test]
fn messages_are_compressed_where_both_sides_can() {
    for encoding in Encoding::ALL {
        let (mut client, mut server) = usual();
        let id = client.begin(&Call { encoding: Some(encoding), ..CALL }).unwrap();
        let message = vec![7; 100_000];
        client.send_message(id, &[&message[..10], &message[10..]], Compressing::IfShorter).unwrap();
        client.send_last_message(id, &[b"plain"], Compressing::No).unwrap();
        assert!(client.queued() < 2000, "{}", client.queued());
        let seen = carry(&mut client, &mut server);
        assert!(matches!(&seen[1], Seen::Message(_, got, cost, false) if *got == message && *cost < 1000));
        assert!(matches!(&seen[2], Seen::Message(_, got, 10, true) if got == b"plain"));
        server.send_message(id, &[&message], Compressing::IfShorter).unwrap();
        assert!(server.queued() < 2000);
        server.send_status(id, &OK).unwrap();
        let seen = carry(&mut server, &mut client);
        assert!(matches!(&seen[1], Seen::Message(_, got, _, _) if *got == message));
    }
}

#[test]
fn what_decompresses_to_too_much_or_to_nothing_ends_only_its_call() {
    let limited = Options { max_message: 1000, ..Options::default() };
    let (mut client, mut server) = pair(Options::default(), limited);
    let long = client.begin(&Call { encoding: Some(Encoding::Zstd), ..CALL }).unwrap();
    client.send_message(long, &[&vec![0; 10_000_000]], Compressing::IfShorter).unwrap();
    assert!(client.queued() < 2000);
    let seen = carry(&mut client, &mut server);
    assert!(matches!(&seen[1], Seen::Refused(_, 8, why) if why.contains("1000")), "{seen:?}");
    // The rest of the body is dropped.
    client.send_last_message(long, &[b"more"], Compressing::No).unwrap();
    assert_eq!(carry(&mut client, &mut server), []);
    server.send_status(long, &Outcome { code: 8, message: "too long", ..OK }).unwrap();
    assert_eq!(carry(&mut server, &mut client), [Seen::Ended(long, status(8, "too long"))]);

    let long = client.begin(&CALL).unwrap();
    client.send_last_message(long, &[&[1; 1001]], Compressing::No).unwrap();
    assert!(matches!(&carry(&mut client, &mut server)[1], Seen::Refused(_, 8, _)));
    let fits = client.begin(&CALL).unwrap();
    client.send_last_message(fits, &[&[1; 1000]], Compressing::No).unwrap();
    assert!(matches!(&carry(&mut client, &mut server)[1], Seen::Message(_, _, 1005, true)));
    // The other way round, the client cancels.
    let (mut client, mut server) = pair(limited, Options::default());
    let id = client.begin(&CALL).unwrap();
    client.end(id).unwrap();
    carry(&mut client, &mut server);
    server.send_message(id, &[&[1; 1001]], Compressing::No).unwrap();
    let seen = carry(&mut server, &mut client);
    assert!(matches!(&seen[..], [Seen::Response(..), Seen::Refused(_, 8, _)]), "{seen:?}");
    assert_eq!(carry(&mut client, &mut server), [Seen::Reset(id, Code::CANCEL, false)]);
}

#[test]
fn a_message_longer_than_all_windows_arrives_and_a_stream_of_messages_waits_for_the_application() {
    let small =
        Options { stream_window: 65_535, connection_window: 65_535, max_message: 4 << 20, ..Options::default() };
    let (mut client, mut server) = pair(Options::default(), small);
    let id = client.begin(&CALL).unwrap();
    let message: Vec<u8> = (0..3_000_000u32).map(|at| at as u8).collect();
    for _ in 0..3 {
        client.send_message(id, &[&message], Compressing::No).unwrap();
    }
    client.end(id).unwrap();
    let mut costs = Vec::new();
    for taken in 0..3 {
        // Nothing is released: one message arrives, and less than a window of the next.
        loop {
            let seen = carry(&mut client, &mut server);
            let is_quiet = seen.is_empty() && server.queued() == 0;
            for one in seen {
                if let Seen::Message(_, got, cost, _) = one {
                    assert!(got == message);
                    costs.push(cost);
                }
            }
            if is_quiet {
                break;
            }
            carry(&mut server, &mut client);
        }
        assert_eq!(costs.len(), taken + 1);
        assert!(server.held() < message.len(), "{}", server.held());
        server.release(id, costs[taken]);
        carry(&mut server, &mut client);
    }
    assert_eq!((client.waiting(), client.queued()), (0, 0));
}

#[test]
fn the_owner_hears_when_there_is_room_and_the_status_comes_last() {
    let queue = Options { send_queue: 100_000, ..Options::default() };
    let (mut client, mut server) = pair(Options { stream_window: 70_000, ..Options::default() }, queue);
    let id = client.begin(&CALL).unwrap();
    client.end(id).unwrap();
    carry(&mut client, &mut server);
    let mut sent = 0;
    while server.send_message(id, &[&[5; 10_000]], Compressing::No).unwrap() == Sent::Ready {
        sent += 1;
    }
    assert!(!server.has_room(id) && server.waiting() >= 100_000 && sent < 20);
    let (mut got, mut rooms) = (0, 0);
    for _ in 0..100 {
        for seen in carry(&mut server, &mut client) {
            if let Seen::Message(_, _, cost, _) = seen {
                client.release(id, cost);
                got += 1;
            }
        }
        rooms += carry(&mut client, &mut server).iter().filter(|one| **one == Seen::Room(id)).count();
        if rooms == 1 {
            break;
        }
    }
    assert_eq!(rooms, 1);
    assert!(server.has_room(id));
    server.send_message(id, &[&vec![5; 200_000]], Compressing::No).unwrap();
    server.send_status(id, &Outcome { code: 3, message: "last", ..OK }).unwrap();
    assert_eq!(server.send_message(id, &[b"x"], Compressing::No), Err(SendError::Gone));
    let mut last = None;
    for _ in 0..100 {
        for seen in carry(&mut server, &mut client) {
            match seen {
                Seen::Message(_, _, cost, _) => {
                    client.release(id, cost);
                    got += 1;
                }
                other => last = Some(other),
            }
        }
        carry(&mut client, &mut server);
    }
    assert_eq!((got, last), (sent + 2, Some(Seen::Ended(id, status(3, "last")))));
    assert_eq!((server.waiting(), server.streams()), (0, 0));
}

/// What may be kept beyond what may be, where an owner keeps as much as it may.
const SPARE: usize = 50_000;

#[test]
fn a_stream_whose_peer_reads_goes_on_beyond_what_may_be_kept_and_others_wait() {
    let (mut client, mut server) = pair(Options { stream_window: 70_000, ..Options::default() }, Options::default());
    let ids: Vec<u32> = (0..4).map(|_| client.begin(&CALL).unwrap()).collect();
    carry(&mut client, &mut server);
    let send = |server: &mut Session, id, len: usize| {
        let may = server.may_go_beyond(id, len, SPARE);
        if may {
            server.send_message(id, &[&vec![7; len]], Compressing::No).unwrap();
        }
        may
    };
    let rooms = |server: &mut Session, client: &mut Session| {
        carry(client, server);
        server.let_go(Some(SPARE));
        let mut told = Vec::new();
        while let Some(event) = server.next_event().unwrap() {
            told.extend(if let Event::MayGoOn { stream } = event { Some(stream) } else { None });
        }
        told
    };
    // The first may be as long as it likes. Of the others what waits beyond their windows counts together.
    assert!(send(&mut server, ids[0], 200_000));
    assert!(send(&mut server, ids[1], 60_000), "the peer has a window for it");
    carry(&mut server, &mut client);
    assert!(!send(&mut server, ids[0], 1) && !send(&mut server, ids[0], 1), "its last one waits");
    assert!(!send(&mut server, ids[2], 200_000));
    assert!(send(&mut server, ids[3], 60_000));
    assert!(rooms(&mut server, &mut client).is_empty());
    // The first stream is read to its end, and so one more long message may wait, of the stream that asked first.
    for _ in 0..4 {
        carry(&mut server, &mut client);
        client.release(ids[0], 60_000);
        carry(&mut client, &mut server);
    }
    assert_eq!(server.waiting(), 0);
    assert_eq!(rooms(&mut server, &mut client), [ids[0], ids[2]]);
    assert!(send(&mut server, ids[2], 200_000));
    assert!(!send(&mut server, ids[0], 200_000));
    // A stream that is given up makes room, and there is room for all once no more is kept than may be.
    client.reset(ids[2], Code::CANCEL);
    assert_eq!(rooms(&mut server, &mut client), [ids[0]]);
    assert!(send(&mut server, ids[0], 200_000) && !send(&mut server, ids[3], 100_000));
    assert!(server.let_go(None) && !server.let_go(None));
}

#[test]
fn bytes_behind_which_nothing_follows_are_known() {
    let (mut client, mut server) = pair(Options { stream_window: 70_000, ..Options::default() }, Options::default());
    let ids: Vec<u32> = (0..3).map(|_| client.begin(&CALL).unwrap()).collect();
    carry(&mut client, &mut server);
    for &id in &ids {
        server.send_message(id, &[&vec![5; 100_000]], Compressing::No).unwrap();
    }
    assert_eq!(server.finished(), 0);
    let one = server.waiting() / 3;
    for &id in &ids[..2] {
        server.send_status(id, &OK).unwrap();
    }
    assert_eq!(server.finished(), 2 * one);
    client.reset(ids[0], Code::CANCEL);
    carry(&mut client, &mut server);
    assert_eq!((server.finished(), server.waiting()), (one, 2 * one));
    carry(&mut server, &mut client);
    for &id in &ids[1..] {
        client.release(id, 60_000);
    }
    carry(&mut client, &mut server);
    assert_eq!((server.finished(), server.waiting()), (0, 0));
}

#[test]
fn long_streams_take_turns() {
    let (mut client, mut server) = usual();
    for id in [1, 3] {
        client.begin(&CALL).unwrap();
        client.end(id).unwrap();
    }
    carry(&mut client, &mut server);
    server.send_message(1, &[&vec![1; 900_000]], Compressing::No).unwrap();
    server.send_message(3, &[&vec![3; 20_000]], Compressing::No).unwrap();
    server.send_status(3, &OK).unwrap();
    server.send_status(1, &OK).unwrap();
    let ended: Vec<_> = carry(&mut server, &mut client)
        .into_iter()
        .filter_map(|seen| if let Seen::Ended(id, _) = seen { Some(id) } else { None })
        .collect();
    assert_eq!(ended, [3, 1]);
}

#[test]
fn as_many_streams_as_the_server_takes() {
    let two = Options { max_concurrent_streams: 2, ..Options::default() };
    let (mut client, mut server) = pair(Options::default(), two);
    for id in [1, 3] {
        assert_eq!(client.begin(&CALL), Ok(id));
    }
    assert_eq!(client.begin(&CALL), Err(SendError::TooManyStreams));
    client.reset(1, Code::CANCEL);
    let seen = carry(&mut client, &mut server);
    assert!(seen.contains(&Seen::Reset(1, Code::CANCEL, false)));
    assert_eq!(events(&mut client), [Seen::StreamsFree]);
    // The handler still works for the first one, so the third is refused.
    assert_eq!(client.begin(&CALL), Ok(5));
    assert_eq!(carry(&mut client, &mut server), []);
    assert_eq!(carry(&mut server, &mut client), [Seen::Reset(5, Code::REFUSED_STREAM, true)]);
    server.forget(1);
    assert_eq!(client.begin(&CALL), Ok(7));
    assert_eq!(carry(&mut client, &mut server), [Seen::Request(7, false)]);
}

#[test]
fn a_server_that_answers_early_wants_no_more_of_the_request() {
    let (mut client, mut server) = usual();
    let id = client.begin(&CALL).unwrap();
    client.send_message(id, &[b"first"], Compressing::No).unwrap();
    carry(&mut client, &mut server);
    server.send_status(id, &Outcome { code: 12, message: "unknown", ..OK }).unwrap();
    client.send_message(id, &[b"second"], Compressing::No).unwrap();
    assert_eq!(carry(&mut client, &mut server), []);
    assert_eq!(carry(&mut server, &mut client), [Seen::Ended(id, status(12, "unknown"))]);
    assert_eq!(client.send_message(id, &[b"third"], Compressing::No), Err(SendError::Gone));
    assert_eq!(carry(&mut client, &mut server), []);
    assert_eq!((client.streams(), server.streams()), (0, 0));
}

#[test]
fn draining_in_two_steps() {
    let (mut client, mut server) = usual();
    let first = client.begin(&CALL).unwrap();
    carry(&mut client, &mut server);
    server.drain();
    // This call was on its way when the goodbye was sent, and is still accepted.
    let second = client.begin(&CALL).unwrap();
    assert_eq!(carry(&mut client, &mut server), [Seen::Request(second, false)]);
    server.drain_now();
    let third = client.begin(&CALL).unwrap();
    assert_eq!(carry(&mut client, &mut server), []);
    let seen = carry(&mut server, &mut client);
    let goodbyes = [(0x7fff_ffff, Code::NO_ERROR), (second, Code::NO_ERROR)];
    let goodbyes = goodbyes.map(|(last, code)| Seen::GoAway(last, code, String::new()));
    assert_eq!(seen[..2], goodbyes);
    assert_eq!(seen[2..], [Seen::Reset(third, Code::REFUSED_STREAM, true)]);
    assert_eq!(client.begin(&CALL), Err(SendError::GoingAway));
    for id in [first, second] {
        assert!(!server.is_finished());
        client.end(id).unwrap();
        server.send_status(id, &OK).unwrap();
        carry(&mut client, &mut server);
        assert_eq!(carry(&mut server, &mut client), [Seen::Ended(id, status(0, ""))]);
    }
    assert!(server.is_finished() && client.is_finished());
}

#[test]
fn pings_come_back() {
    let (mut client, mut server) = usual();
    client.ping(*b"12345678");
    assert_eq!(carry(&mut client, &mut server), []);
    assert_eq!(carry(&mut server, &mut client), [Seen::Pong(*b"12345678")]);
}

#[test]
fn over_budget_nothing_but_data_stops() {
    let small = Options { connection_window: 70_000, ..Options::default() };
    let (mut client, mut server) = pair(Options::default(), small);
    server.hold_credit(true);
    let id = client.begin(&CALL).unwrap();
    for _ in 0..20 {
        client.send_message(id, &[&[1; 10_000]], Compressing::No).unwrap();
    }
    client.ping([0; 8]);
    let messages = carry(&mut client, &mut server).len();
    assert!(messages < 8, "a request and what fits into the window");
    assert_eq!(carry(&mut server, &mut client), [Seen::Pong([0; 8])]);
    server.hold_credit(false);
    carry(&mut server, &mut client);
    assert!(!carry(&mut client, &mut server).is_empty());
}

#[test]
fn an_answer_that_is_no_grpc() {
    let (mut client, mut server) = usual();
    let id = client.begin(&CALL).unwrap();
    carry(&mut client, &mut server);
    server.answer(id, 503, &[("content-type", b"text/plain")], b"come back later").unwrap();
    let seen = carry(&mut server, &mut client);
    let message = "the server does not answer as gRPC does: HTTP status 503";
    assert_eq!(seen, [Seen::Ended(id, status(14, message))]);
}

#[test]
fn who_cancels_responses_is_not_flooded_by_what_is_under_way() {
    let impatient = Options { useless_burst: 50, useless_per_second: 0, ..Options::default() };
    let (mut client, mut server) = pair(impatient, Options::default());
    for (number, len) in [(10, 10_000), (5_000, 1), (5_000, 0)].repeat(10) {
        let id = client.begin(&CALL).unwrap();
        client.end(id).unwrap();
        carry(&mut client, &mut server);
        for _ in 0..number {
            server.send_message(id, &[&[1; 10_000][..len]], Compressing::No).unwrap();
        }
        client.reset(id, Code::CANCEL);
        assert_eq!(carry(&mut server, &mut client), []);
        carry(&mut client, &mut server);
        server.forget(id);
    }
}

#[test]
fn a_long_message_is_written_on_the_way_whatever_the_writer_takes() {
    let message: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    // Bytes that the writer accepts at a time, before it accepts nothing once.
    for taken in [0, 1, 100_000, usize::MAX] {
        for waits in [false, true] {
            let large = Options { stream_window: 8 << 20, connection_window: 8 << 20, ..Options::default() };
            let (mut client, mut server) = pair(Options::default(), large);
            let (other, long) = (client.begin(&CALL).unwrap(), client.begin(&CALL).unwrap());
            if waits {
                client.send_message(other, &[&vec![7; 600_000]], Compressing::No).unwrap();
            }
            let (mut turns, mut written, mut longest) = (0, Vec::new(), 0);
            let mut out = |bytes: &[u8]| {
                turns += 1;
                longest = longest.max(bytes.len());
                let len = if turns % 5 == 0 { 0 } else { bytes.len().min(taken) };
                written.extend_from_slice(&bytes[..len]);
                len
            };
            let pieces = [&message[..5], &[], &message[5..1_000_000], &message[1_000_000..]];
            client.send_message_through(long, &pieces, Compressing::No, true, &mut out).unwrap();
            assert!(longest < 300_000, "{longest} bytes were to be written at once");
            assert_eq!(written.is_empty(), taken == 0 || waits, "what waits comes first");
            server.feed(&written);
            let mut seen = events(&mut server);
            for _ in 0..20 {
                seen.extend(carry(&mut client, &mut server));
                carry(&mut server, &mut client);
            }
            let got = seen.iter().find_map(|one| match one {
                Seen::Message(id, got, _, ended) if *id == long => Some((got, *ended)),
                _ => None,
            });
            let (got, ended) = got.expect("it arrived");
            assert!(*got == message && ended, "taken {taken}, waits {waits}");
        }
    }
}

#[test]
fn a_client_that_is_not_wanted_is_told_why() {
    for (why, heard) in [("not you", "not you".to_owned()), (&"x".repeat(1000), "x".repeat(256))] {
        let mut client = Session::client(Options::default());
        client.feed(&refusal(Code::INADEQUATE_SECURITY, why));
        assert_eq!(events(&mut client), [Seen::GoAway(0, Code::INADEQUATE_SECURITY, heard)]);
        assert!(!client.is_settled());
    }
    // One that is only late may take the connection for good, until it reads on.
    let mut client = Session::client(Options::default());
    client.feed(&farewell(Code::PROTOCOL_ERROR, "too late"));
    assert_eq!(events(&mut client), [Seen::GoAway(0, Code::PROTOCOL_ERROR, "too late".into())]);
    assert!(client.is_settled());
    // A client must not begin with a GOAWAY.
    let mut server = Session::server(Options::default());
    server.feed(Session::client(Options::default()).unsent().get(..24).unwrap());
    server.feed(&refusal(Code::NO_ERROR, ""));
    assert!(server.next_event().is_err());
}

//! An HTTP/2 connection with a stranger at its other end, in either role, in pieces of his choice.
use nearcall_http::{Call, Code, Compressing, Ending, Event, Options, Outcome, Session};

const OPTIONS: Options = Options {
    max_message: 3000,
    limit: nearcall_http::LimitName::PLAIN,
    max_concurrent_streams: 5,
    stream_window: 65_535,
    connection_window: 65_535,
    max_header_list: 2000,
    send_queue: 1000,
    encoding: None,
    useless_burst: 200,
    useless_per_second: 0,
};
/// Streams, each with a message, its compressed form or a window; the buffers; a header block.
const MOST_HELD: usize = 5 * (128 << 10) + (256 << 10);
/// Replies that nobody reads, and what this owner says by itself.
const MOST_QUEUED: usize = 768 << 10;

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(input: &[u8]) {
    let [shape, input @ ..] = input else { return };
    let is_server = shape & 1 == 0;
    let mut session = if is_server { Session::server(OPTIONS) } else { Session::client(OPTIONS) };
    let mut bytes = Vec::new();
    // Most strangers know how to begin, and what a frame is.
    if shape & 2 == 0 {
        if is_server {
            bytes.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
        bytes.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    }
    if shape & 4 == 0 {
        framed(input, &mut bytes);
    } else {
        bytes.extend_from_slice(input);
    }
    if !is_server {
        for at in 0..3 {
            let _ = begin(&mut session, at);
        }
    }
    let size = usize::from(shape >> 3) * 20 + 1;
    for (at, piece) in bytes.chunks(size).enumerate() {
        session.feed(piece);
        if !look(&mut session, is_server) {
            assert!(session.next_event().is_err(), "it stays broken");
            break;
        }
        assert!(session.held() <= MOST_HELD, "{} bytes are held", session.held());
        assert!(session.queued() <= MOST_QUEUED, "{} bytes are queued", session.queued());
        if at % 3 == 0 {
            drain(&mut session);
        }
    }
    drain(&mut session);
    for id in 0..600 {
        session.reset(id, Code::CANCEL);
    }
    assert_eq!((session.streams(), session.waiting()), (0, 0));
}

/// Frames out of a short form: kind, flags, stream, length, payload.
fn framed(mut input: &[u8], out: &mut Vec<u8>) {
    while let [kind, flags, stream, len, rest @ ..] = input {
        let (payload, after) = rest.split_at(rest.len().min(usize::from(*len)));
        out.extend_from_slice(&[0, 0, payload.len() as u8, *kind % 11, *flags, 0, 0, 0, *stream]);
        out.extend_from_slice(payload);
        input = after;
    }
}

fn begin(session: &mut Session, at: usize) -> Option<u32> {
    let call = Call {
        path: "/a/b",
        authority: "",
        is_secure: false,
        codec: "",
        timeout: None,
        encoding: nearcall_http::Encoding::ALL.get(at).copied(),
        metadata: None,
        user_agent: "",
    };
    let id = session.begin(&call).ok()?;
    session
        .send_message(id, &[&[0; 700]], [Compressing::Always, Compressing::IfShorter, Compressing::No][at.min(2)])
        .expect("it was begun");
    if at == 1 {
        session.end(id).expect("it was begun");
    }
    Some(id)
}

/// What is written is frames.
fn drain(session: &mut Session) {
    while session.queued() > 0 {
        let len = session.queued().div_ceil(2);
        session.sent(len);
    }
}

/// Looks at all events, and answers. Whether the connection goes on.
fn look(session: &mut Session, is_server: bool) -> bool {
    loop {
        let mut reply = None;
        let (mut release, mut forget) = (None, None);
        match session.next_event() {
            Err(broken) => {
                assert!(!broken.why.is_empty());
                return false;
            }
            Ok(None) => return true,
            Ok(Some(Event::Request { stream, request, ended })) => {
                assert!(is_server && stream % 2 == 1);
                assert!(!request.method().is_empty());
                let _ = (request.timeout(), request.metadata(), request.accepts(), request.authority());
                if ended {
                    reply = Some((stream, None));
                }
            }
            Ok(Some(Event::Message { stream, message, cost, ended, .. })) => {
                assert!(message.len() <= OPTIONS.max_message && cost <= OPTIONS.max_message + 5);
                release = Some((stream, cost));
                if ended || message.first() == Some(&1) {
                    reply = Some((stream, Some(message.into_owned())));
                }
            }
            Ok(Some(Event::Data { stream, data, cost, .. })) => {
                assert_eq!(data.len(), cost);
                release = Some((stream, cost));
            }
            Ok(Some(Event::Ended { stream, ending })) => {
                if let Ending::Status { code, .. } = ending {
                    assert!(!is_server && code <= 16);
                } else {
                    reply = Some((stream, None));
                }
            }
            Ok(Some(Event::Refused { stream, code, .. })) => {
                assert!(code <= 16);
                reply = Some((stream, None));
            }
            Ok(Some(Event::Reset { stream, .. })) => forget = Some(stream),
            Ok(Some(Event::Response { response, .. })) => assert!(response.status() >= 100),
            Ok(Some(_)) => {}
        }
        if let Some((stream, cost)) = release {
            session.release(stream, cost);
        }
        if let Some(stream) = forget {
            session.forget(stream);
        }
        match reply {
            Some((stream, message)) if is_server => {
                if let Some(message) = message {
                    let _ = session.send_message(
                        stream,
                        &[&message],
                        if stream % 4 == 1 { Compressing::IfShorter } else { Compressing::No },
                    );
                }
                let _ = session.send_status(stream, &Outcome { code: 3, message: "é", ..Outcome::default() });
            }
            _ => {}
        }
    }
}

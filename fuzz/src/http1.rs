//! A connection of HTTP/1.1 with a stranger at its other end: the same comes of his bytes however they are divided, and little
//! of them is kept.
use nearcall_http::{Asked, Calls, Compressing, Connection as _, Event, Http1, Origins, Outcome, Reply};

use crate::http1_limits::{MOST_HELD, OPTIONS};

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(input: &[u8]) {
    let [shape, input @ ..] = input else { return };
    let whole = transcript(input, input.len().max(1));
    let size = usize::from(*shape) + 1;
    assert_eq!(whole, transcript(input, size), "parts of {size}");
}

/// What a server hears and says: requests, messages and their ends in order, and the bytes that it writes.
fn transcript(input: &[u8], size: usize) -> (Vec<String>, Vec<u8>) {
    let mut session = Http1::new(OPTIONS, false);
    let (mut heard, mut said, mut call) = (Vec::new(), Vec::new(), None);
    // Where a message ends that is refused, more of its body is read or less.
    for part in input.chunks(size) {
        session.feed(part);
        let goes_on = look(&mut session, &mut heard, &mut call);
        assert!(session.held() <= MOST_HELD, "{} bytes are held", session.held());
        said.extend_from_slice(session.unsent());
        session.sent(session.queued());
        if !goes_on {
            assert!(session.next_event().is_err(), "it stays broken");
            break;
        }
    }
    if session.is_finished() {
        heard.push("the end".to_owned());
    }
    (heard, said)
}

/// Looks at all events, and answers as a server does that sends each message back. Whether the connection goes on.
fn look(session: &mut Http1, heard: &mut Vec<String>, call: &mut Option<(u32, Reply)>) -> bool {
    let origins = Origins::default();
    loop {
        let mut end = None;
        match session.next_event() {
            Err(broken) => {
                heard.push(broken.why.to_owned());
                return false;
            }
            Ok(None) => return true,
            Ok(Some(Event::Request { stream, request, ended })) => {
                assert!(call.is_none(), "one at a time");
                assert!(!request.method().is_empty() && request.path().bytes().all(|octet| octet.is_ascii_graphic()));
                heard.push(format!("{} {}", request.method(), request.path()));
                match Asked::read(request, &origins, false, OPTIONS.max_message) {
                    Ok(asked) => {
                        asked.reads.into_iter().for_each(|reads| session.read_as(stream, reads));
                        *call = Some((stream, Reply::to(&asked, None)));
                        end = (ended || asked.by_get.is_some()).then_some((stream, 0));
                    }
                    Err(answer) => {
                        session.answer(stream, answer.status, &answer.fields(), answer.body.as_bytes()).expect("fresh");
                    }
                }
            }
            Ok(Some(Event::Message { stream, message, cost, ended, .. })) => {
                assert!(message.len() <= OPTIONS.max_message && cost <= OPTIONS.max_message);
                let message = message.into_owned();
                heard.push(format!("{message:?}"));
                session.release(stream, cost);
                if let Some((_, reply)) = call {
                    let _ = reply.message(session, stream, &[&message], Compressing::No, &mut |_| 0);
                }
                end = ended.then_some((stream, 0));
            }
            Ok(Some(Event::Data { stream, data, cost, .. })) => {
                assert_eq!(data.len(), cost);
                session.release(stream, cost);
            }
            Ok(Some(Event::Ended { stream, .. })) => end = Some((stream, 0)),
            Ok(Some(Event::Refused { stream, code, .. })) => end = Some((stream, code)),
            Ok(Some(_)) => {}
        }
        if let Some((stream, code)) = end
            && let Some((number, mut reply)) = call.take()
        {
            assert_eq!(number, stream);
            let _ = reply.end(session, stream, &Outcome { code, message: "é", ..Outcome::default() });
        }
    }
}

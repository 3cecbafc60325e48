//! A client of Connect's over HTTP/1.1 with a stranger for a server: the same comes of his bytes however they are divided, each
//! call ends once, and little of what he says is kept.
use nearcall_http::{
    Asks, Call, Caller, Code, Codec, Compressing, Connection as _, Ending, Event, Http1Client, Requests, Shape,
};

use crate::http1_limits::{MOST_HELD, OPTIONS};

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(input: &[u8]) {
    let [kind, shape, input @ ..] = input else { return };
    let streams = kind & 1 == 1;
    let whole = transcript(input, input.len().max(1), streams);
    let size = usize::from(*shape) + 1;
    assert_eq!(whole, transcript(input, size, streams), "parts of {size}");
}

/// What a client hears that makes one call after the other.
fn transcript(input: &[u8], size: usize, streams: bool) -> Vec<String> {
    let mut session = Http1Client::new(OPTIONS);
    let (mut heard, mut call) = (Vec::new(), begin(&mut session, streams));
    for part in input.chunks(size) {
        session.feed(part);
        let goes_on = look(&mut session, &mut heard, &mut call, streams);
        assert!(session.held() <= MOST_HELD, "{} bytes are held", session.held());
        session.sent(session.queued());
        if !goes_on {
            assert!(session.next_event().is_err(), "it stays broken");
            break;
        }
    }
    heard
}

fn begin(session: &mut Http1Client, streams: bool) -> Option<(u32, Caller)> {
    let asks = Asks::Connect { codec: Codec::Json, by_get: false };
    let shape = Shape { streams_in: false, streams_out: streams, is_safe: false };
    let call = Call { path: "/a.B/C", authority: "there", ..Call::default() };
    Caller::begin(session, asks, shape, &call, Some(&[b"{}"]), Compressing::No, &mut |_| 0).ok()
}

/// Looks at all events. Whether the connection goes on.
fn look(session: &mut Http1Client, heard: &mut Vec<String>, call: &mut Option<(u32, Caller)>, streams: bool) -> bool {
    loop {
        let mut over = None;
        match session.next_event() {
            Err(broken) => {
                heard.push(broken.why.to_owned());
                return false;
            }
            Ok(None) => return true,
            Ok(Some(Event::Response { stream, response })) => {
                let (number, caller) = call.as_mut().expect("it was asked for");
                assert_eq!(*number, stream);
                match caller.opened(response) {
                    Ok(opened) => {
                        heard.push(format!("{:?}", opened.metadata));
                        opened.reads.into_iter().for_each(|reads| session.read_as(stream, reads));
                    }
                    Err((code, why)) => {
                        heard.push(format!("{code} {why}"));
                        *call = None;
                        session.reset(stream, Code::CANCEL);
                    }
                }
            }
            Ok(Some(Event::Message { stream, message, cost, ended, .. })) => {
                assert!(message.len() <= OPTIONS.max_message && cost <= OPTIONS.max_message);
                if let Some((_, caller)) = call {
                    heard.push(format!("{} {message:?}", caller.takes(&message)));
                }
                over = ended.then_some(Ending::Plain);
                session.release(stream, cost);
            }
            Ok(Some(Event::Ended { ending, .. })) => over = Some(ending),
            Ok(Some(Event::Refused { code, why, .. })) => {
                assert!(call.take().is_some(), "each call ends once");
                heard.push(format!("{code} {why}"));
            }
            Ok(Some(_)) => {}
        }
        if let Some(ending) = over
            && let Some((_, mut caller)) = call.take()
        {
            let ending = caller.ended(ending);
            assert!(matches!(ending, Ending::Status { code: 0..=16, .. }), "{ending:?}");
            heard.push(format!("{ending:?}"));
            *call = begin(session, streams);
        }
    }
}

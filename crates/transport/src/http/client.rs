//! The client's end of a connection: calls by gRPC or by Connect.

use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_http::{
    Asks, Call as Begin, Caller, Code, Encoding, Ending, Event, Opened, Out, Requests, SendError, Shape, StreamId,
};
use nearcall_wire::{Failure, FrameHead, Kind, Metadata, rpc_status};
use smallvec::SmallVec;

use super::frames::{Frames, bare, compresses, credit, message, owned, short, unsent, with_message};
use super::inflow::{Inflow, Outflow};
use super::role::Role;
use super::waiting::Waiting;
use crate::errors::LinkError;
use crate::frame::incoming::{INLINE, Incoming};
use crate::frame::outgoing::{Body, CallKey, Compress, Outgoing};
use crate::limits::budget::Account;

/// The calls that are made over one connection.
#[derive(Debug)]
pub(crate) struct HttpClient<S> {
    origin: Origin,
    account: Arc<Account>,
    calls: HashMap<StreamId, SentCall>,
    /// The stream of each call, by the core's number.
    streams: HashMap<u32, StreamId>,
    /// Calls that the server does not accept yet.
    queue: Waiting,
    /// The longest message that is accepted, in bytes.
    max_message: usize,
    /// Bytes of messages that the core has no credit for.
    waiting: usize,
    of: PhantomData<fn(S)>,
}

/// What all calls of a connection have in common.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The server's name, as requests give it.
    pub(super) authority: String,
    pub(super) is_secure: bool,
    /// How messages are compressed, if at all.
    pub(super) encoding: Option<Encoding>,
    /// The protocol of the calls.
    pub(super) asks: Asks,
}

/// Bytes of messages that may wait for the core on each call, counted after decompression. HTTP/2's windows count
/// compressed bytes, and a megabyte of those can become gigabytes.
const WAITING_PER_CALL: usize = 16 << 20;

/// A call under way.
#[derive(Debug)]
struct SentCall {
    number: u32,
    caller: Caller,
    /// The server has begun to answer.
    answered: bool,
    /// The answer is a stream.
    streams_out: bool,
    /// Its deadline.
    until: Option<Instant>,
    /// The message, when it has arrived, if the answer is a single one.
    reply: Option<SmallVec<[u8; INLINE]>>,
    inflow: Inflow,
    outflow: Outflow,
}

impl<S: Requests + 'static> HttpClient<S> {
    pub(crate) fn new(origin: Origin, account: Arc<Account>, max_message: usize) -> Self {
        let (calls, streams, queue) = (HashMap::new(), HashMap::new(), Waiting::default());
        Self { origin, account, calls, streams, queue, max_message, waiting: 0, of: PhantomData }
    }

    fn begin(
        &mut self,
        session: &mut S,
        frames: &mut Frames,
        number: u32,
        frame: &Outgoing<'_>,
        out: Out<'_>,
    ) -> Result<(), LinkError> {
        let Some(path) = frame.path else {
            return Err(LinkError::Unfit("HTTP cannot carry calls of this method: it has no path".into()));
        };
        if frame.flags != 0 || frame.target.is_some() {
            return Err(LinkError::Unfit(
                "over HTTP there are no one-way calls, no arguments by name and no calls of objects".into(),
            ));
        }
        let arguments = message(frame)?;
        // A call that compresses no message names no encoding.
        let encoding = frame.encoding.or(self.origin.encoding).filter(|_| frame.compress != Compress::No);
        let call = Begin {
            path: &path.path,
            authority: &self.origin.authority,
            is_secure: self.origin.is_secure,
            codec: "",
            timeout: frame.deadline_us.map(Duration::from_micros),
            encoding,
            metadata: frame.metadata.as_ref(),
            user_agent: concat!("nearcall/", env!("CARGO_PKG_VERSION")),
        };
        let shape = Shape { streams_in: path.streams_in, streams_out: path.streams_out, is_safe: path.is_safe };
        // A stream begins with a message only if the call has arguments beside the stream.
        let first = (!path.streams_in || !frame.is_empty()).then_some(arguments);
        let begun = Caller::begin(session, self.origin.asks, shape, &call, first, compresses(frame, true), out);
        let (stream, caller) = match begun {
            Ok(begun) => begun,
            Err(SendError::NoMoreIds | SendError::GoingAway) => {
                // The core makes another connection, and calls again.
                frames.push_back(bare(Kind::GoAway, 0));
                let why = "the server ends this connection; calls go to a new one";
                frames.push_back(Incoming::refused(number, &Failure::new(Failure::UNAVAILABLE, why)));
                return Ok(());
            }
            Err(SendError::TooManyStreams) => return Err(LinkError::Full),
            Err(error) => return unsent(error),
        };
        let until = frame.deadline_us.and_then(|left| Instant::now().checked_add(Duration::from_micros(left)));
        let (inflow, outflow) = (Inflow::new(number), Outflow::default());
        let (streams_out, answered, reply) = (path.streams_out, false, None);
        self.keep(stream, SentCall { number, caller, answered, streams_out, until, reply, inflow, outflow });
        Ok(())
    }

    /// Begins waiting calls, as many as the server accepts now.
    fn begin_waiting(&mut self, session: &mut S, frames: &mut Frames) {
        while let Some(mut waited) = self.queue.pop() {
            match self.begin(session, frames, waited.number, &waited.frame(), &mut |_| 0) {
                Ok(()) => {}
                Err(LinkError::Full) => return self.queue.push_first(waited),
                Err(error) => {
                    frames
                        .push_back(Incoming::local(waited.number, &Failure::new(Failure::INTERNAL, error.to_string())));
                }
            }
            let key = CallKey { number: waited.number, side: 0 };
            for (kind, compress, payload) in std::mem::take(&mut waited.rest) {
                let frame = Outgoing { compress, ..Outgoing::new(kind, Body::Whole(&payload)) };
                // `follow` has checked that HTTP can carry the frame. If the call has failed, the frame is not needed.
                let _ = self.put(session, frames, key, &frame, &mut |_| 0);
            }
        }
    }

    fn keep(&mut self, stream: StreamId, call: SentCall) {
        self.waiting += call.inflow.waiting();
        self.streams.insert(call.number, stream);
        self.calls.insert(stream, call);
    }

    fn forget(&mut self, stream: StreamId) -> Option<SentCall> {
        let call = self.calls.remove(&stream)?;
        self.streams.remove(&call.number);
        self.waiting -= call.inflow.waiting();
        Some(call)
    }

    /// Ends a call for another reason than the server's status.
    fn fail(&mut self, frames: &mut Frames, stream: StreamId, failure: &Failure) {
        self.end_by(frames, stream, |call| Incoming::local(call, failure));
    }

    fn end_by(&mut self, frames: &mut Frames, stream: StreamId, end: impl FnOnce(u32) -> Incoming) {
        if let Some(mut call) = self.forget(stream) {
            call.inflow.end(end(call.number), frames);
            self.keep_ended(call, stream);
        }
    }

    /// Keeps a call whose end waits behind items that the core has no credit for.
    fn keep_ended(&mut self, call: SentCall, stream: StreamId) {
        if call.inflow.has_end() {
            self.keep(stream, call);
        }
    }

    fn ended(&mut self, session: &mut S, frames: &mut Frames, stream: StreamId, ending: Ending) {
        let Some(mut call) = self.forget(stream) else { return };
        // The server has ended the call: it needs no more of what this side sends.
        session.reset(stream, Code::CANCEL);
        if !call.streams_out && call.caller.is_whole() {
            call.reply.get_or_insert_default();
        }
        let end = match call.caller.ended(ending) {
            Ending::Status { code: 0, metadata, .. } if call.streams_out => {
                Incoming::new(with_metadata(FrameHead::new(Kind::End, call.number), metadata), &[])
            }
            Ending::Status { code: 0, metadata, .. } => {
                let head = with_metadata(FrameHead::new(Kind::Reply, call.number), metadata);
                let failed = |why| Incoming::local(call.number, &Failure::new(Failure::UNIMPLEMENTED, why));
                let reply = call.reply.take().map(|message| with_message(head, message, &self.account));
                reply.unwrap_or_else(|| failed("the server has sent no message, and no failure"))
            }
            Ending::Status { code, message, details, metadata } => {
                // Details that cannot be decoded are left out: code and message remain.
                let known = rpc_status::decode(&details).map(|status| status.details).unwrap_or_default();
                let failure = Failure { code, message, details: known };
                let mut end = Incoming::local(call.number, &failure);
                end.head = with_metadata(end.head, metadata);
                end
            }
            Ending::Plain | Ending::Stream(_) => {
                Incoming::local(call.number, &Failure::new(Failure::INTERNAL, "the call has ended without a status"))
            }
        };
        call.inflow.end(end, frames);
        self.keep_ended(call, stream);
    }

    /// The server has begun to answer a call: with a head that can be read, or one that ends the call.
    fn opened(
        &mut self,
        session: &mut S,
        frames: &mut Frames,
        stream: StreamId,
        opened: Result<Opened, (u8, Cow<'static, str>)>,
    ) {
        match opened {
            Ok(Opened { metadata, reads }) => {
                if let Some(reads) = reads {
                    session.read_as(stream, reads);
                }
                if let Some(call) = self.calls.get(&stream).filter(|_| metadata.is_some()) {
                    let head = with_metadata(FrameHead::new(Kind::Head, call.number), metadata);
                    frames.push_back(Incoming::new(head, &[]));
                }
            }
            Err((code, why)) => {
                session.reset(stream, Code::CANCEL);
                self.fail(frames, stream, &Failure::new(code, why));
            }
        }
    }

    /// Takes in a message that costs so much of the window. Whether the call goes on with it.
    fn message(
        &mut self,
        session: &mut S,
        frames: &mut Frames,
        stream: StreamId,
        message: SmallVec<[u8; INLINE]>,
        cost: usize,
    ) -> bool {
        let Some(call) = self.calls.get_mut(&stream) else {
            session.release(stream, cost);
            return false;
        };
        if !call.caller.takes(&message) {
            session.release(stream, cost);
        } else if call.streams_out {
            let before = call.inflow.waiting();
            // `false`: clients are not told whether a message was compressed.
            call.inflow.item(message, cost, false, frames, &self.account);
            self.waiting += call.inflow.waiting() - before;
        } else {
            session.release(stream, cost);
            if call.reply.replace(message).is_some() {
                session.reset(stream, Code::CANCEL);
                let why = "the server has sent more than one message";
                self.fail(frames, stream, &Failure::new(Failure::UNIMPLEMENTED, why));
                return false;
            }
        }
        true
    }

    /// The server has reset a call. `unprocessed`: it says that it has not begun with it.
    fn was_reset(&mut self, frames: &mut Frames, stream: StreamId, code: Code, unprocessed: bool) {
        let Some(call) = self.calls.get(&stream) else { return };
        if unprocessed && !call.answered {
            let why = "the server has not begun with the call: it may be sent again";
            let failure = Failure::new(Failure::UNAVAILABLE, why);
            return self.end_by(frames, stream, |call| Incoming::refused(call, &failure));
        }
        let until = call.until;
        let failure = if code == Code::CANCEL && until.is_some_and(|until| until <= Instant::now()) {
            // A server that watches the deadline, too, may cancel the call before this side has noticed.
            Failure::new(Failure::DEADLINE_EXCEEDED, "the server has given the call up at its deadline")
        } else if unprocessed {
            let why = "the server has refused the call after it had begun to answer: it may have run";
            Failure::new(Failure::UNAVAILABLE, why)
        } else {
            Failure::new(code.status(), format!("the server has reset the call: {}", code.name()))
        };
        self.fail(frames, stream, &failure);
    }
}

fn with_metadata(mut head: FrameHead, metadata: Option<Metadata>) -> FrameHead {
    if metadata.is_some() {
        head.extras_mut().metadata = metadata;
    }
    head
}

impl<S: Requests + 'static> Role for HttpClient<S> {
    type Session = S;

    fn why_no_room(&self, session: &mut S) -> Option<String> {
        let most = session.http2()?.most_streams();
        if self.calls.len() < most as usize {
            return None;
        }
        Some(match most {
            0 => "takes no calls at present (its max_concurrent_streams is 0)".into(),
            most => format!("takes {most} calls at a time (its max_concurrent_streams), and as many are under way"),
        })
    }

    fn take_in(&mut self, session: &mut S, frames: &mut Frames) -> Result<bool, LinkError> {
        let most = self.max_message.saturating_add(WAITING_PER_CALL.saturating_mul(self.calls.len()));
        session.limit_decompression(most.saturating_sub(self.waiting));
        let Some(event) = session.next_event().map_err(|broken| LinkError::Broken(broken.why.to_owned()))? else {
            return Ok(false);
        };
        match event {
            Event::Response { stream, response } => {
                let Some(call) = self.calls.get_mut(&stream) else { return Ok(true) };
                call.answered = true;
                let opened = call.caller.opened(response);
                self.opened(session, frames, stream, opened);
            }
            Event::Message { stream, message, cost, ended, .. } => {
                let message = owned(message);
                if self.message(session, frames, stream, message, cost) && ended {
                    self.ended(session, frames, stream, Ending::Plain);
                }
            }
            Event::Ended { stream, ending } => self.ended(session, frames, stream, ending),
            Event::Refused { stream, code, why } => self.fail(frames, stream, &Failure::new(code, why)),
            Event::Reset { stream, code, unprocessed } => self.was_reset(frames, stream, code, unprocessed),
            Event::Room { stream } => {
                if let Some(call) = self.calls.get_mut(&stream) {
                    let spent = call.outflow.room();
                    frames.push_back(credit(call.number, spent));
                }
            }
            Event::Data { stream, cost, .. } => session.release(stream, cost),
            // The core makes another connection for new calls. Those above the last one are reset, one event each.
            Event::GoAway { .. } => {
                frames.push_back(bare(Kind::GoAway, 0));
                // `begin` refuses the waiting calls, and the core repeats them on that connection.
                self.begin_waiting(session, frames);
            }
            Event::Pong(token) => {
                let [a, b, c, d, ..] = token;
                frames.push_back(bare(Kind::Pong, u32::from_be_bytes([a, b, c, d])));
            }
            // A thread that waits for free streams tries again whenever something comes.
            Event::StreamsFree => self.begin_waiting(session, frames),
            Event::Request { .. } | Event::MayGoOn { .. } => {}
        }
        Ok(true)
    }

    fn put(
        &mut self,
        session: &mut S,
        frames: &mut Frames,
        call: CallKey,
        frame: &Outgoing<'_>,
        out: Out<'_>,
    ) -> Result<(), LinkError> {
        let number = call.number;
        match frame.kind {
            Kind::Call => return self.begin(session, frames, number, frame, out),
            Kind::Ping => {
                if number == u32::MAX {
                    // This ping only wakes the receiving thread. It needs no server.
                    frames.push_back(bare(Kind::Pong, number));
                    return Ok(());
                }
                let Some(session) = session.http2() else {
                    return Err(LinkError::Unfit("the server speaks HTTP/1.1, which has no ping".into()));
                };
                let [a, b, c, d] = number.to_be_bytes();
                session.ping([a, b, c, d, 0, 0, 0, 0]);
                return Ok(());
            }
            Kind::Item | Kind::End | Kind::Cancel | Kind::Credit => {}
            Kind::Pong | Kind::GoAway | Kind::Reply | Kind::Error | Kind::Head | Kind::Release => {
                return Err(LinkError::Unfit("over HTTP a server cannot call".into()));
            }
        }
        // An ended call has no stream any more, and a waiting call has none yet.
        let Some(&stream) = self.streams.get(&number) else { return self.queue.follow(number, frame) };
        match frame.kind {
            Kind::Item => {
                let Some(call) = self.calls.get_mut(&stream) else { return Ok(()) };
                let (pieces, compress) = (message(frame)?, compresses(frame, true));
                let sent = call.caller.message(session, stream, pieces, compress, false, out);
                Outflow::sent(Some(&mut call.outflow), sent, frame.len(), number, frames)
            }
            Kind::End => session.end(stream).or_else(unsent),
            Kind::Credit => {
                if let Some(mut call) = self.forget(stream) {
                    let ended = call.inflow.has_end();
                    let release = |stream, taken| session.release(stream, taken);
                    call.inflow.grant(short(frame), stream, release, frames, &self.account);
                    if !ended || call.inflow.has_end() {
                        self.keep(stream, call);
                    }
                }
                Ok(())
            }
            _ => {
                self.forget(stream);
                session.reset(stream, Code::CANCEL);
                Ok(())
            }
        }
    }

    fn wait(&mut self, call: CallKey, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        self.queue.push(call.number, frame)
    }

    fn unbegun(&self) -> impl Iterator<Item = u32> {
        self.queue.numbers()
    }

    fn make_room(&mut self, _session: &mut S, _frames: &mut Frames) -> bool {
        // A client refuses no answer to its own calls.
        false
    }

    fn finished(&mut self, _session: &mut S, _call: u32) {}

    fn given_up(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use nearcall_http::{Compressing, Head, Options, Session};

    use super::*;
    use crate::frame::paths::MethodPath;
    use crate::limits::budget::Budget;

    const MEGABYTE: usize = 1 << 20;

    fn origin() -> Origin {
        Origin { authority: "there".into(), is_secure: false, encoding: None, asks: Asks::Grpc }
    }

    fn carry(from: &mut Session, to: &mut Session) {
        to.feed(from.unsent());
        from.sent(from.queued());
    }

    /// A client with one call under way, and a server that has its request.
    struct Pair {
        own: Session,
        client: HttpClient<Session>,
        frames: Frames,
        server: Session,
        stream: StreamId,
    }

    impl Pair {
        fn calling(deadline_us: Option<u64>) -> Self {
            let options = || Options { max_message: MEGABYTE, ..Options::default() };
            let (mut own, mut server) = (Session::client(options()), Session::server(options()));
            let budget = Budget::new(1 << 30);
            let mut client = HttpClient::new(origin(), Account::of(&budget, 1 << 30), MEGABYTE);
            let path = MethodPath { path: "/a.B/C".into(), streams_in: false, streams_out: true, is_safe: false };
            let mut frames = Frames::new();
            let call = Outgoing { path: Some(&path), deadline_us, ..Outgoing::new(Kind::Call, Body::Whole(b"")) };
            carry(&mut server, &mut own);
            while client.take_in(&mut own, &mut frames).unwrap() {}
            client.put(&mut own, &mut frames, CallKey { number: 7, side: 0 }, &call, &mut |_| 0).unwrap();
            carry(&mut own, &mut server);
            let stream = loop {
                if let Some(Event::Request { stream, .. }) = server.next_event().unwrap() {
                    break stream;
                }
            };
            Self { own, client, frames, server, stream }
        }

        /// Takes in what the server has sent.
        fn receive(&mut self) {
            carry(&mut self.server, &mut self.own);
            while self.client.take_in(&mut self.own, &mut self.frames).unwrap() {}
        }
    }

    #[test]
    fn a_server_that_gives_up_at_the_deadline_may_be_the_first_to_notice() {
        for (deadline_us, code, expected) in [
            (Some(0), Code::CANCEL, Failure::DEADLINE_EXCEEDED),
            (Some(60_000_000), Code::CANCEL, Failure::CANCELLED),
            (None, Code::CANCEL, Failure::CANCELLED),
            (Some(0), Code::INTERNAL_ERROR, Failure::INTERNAL),
        ] {
            let mut pair = Pair::calling(deadline_us);
            pair.server.reset(pair.stream, code);
            pair.receive();
            let end = pair.frames.pop_front().expect("the call has ended");
            assert_eq!(end.failure().expect("a failure").code, expected, "{deadline_us:?} {code:?}");
        }
    }

    /// A megabyte of zeros is a thousand bytes when compressed.
    #[test]
    fn what_compressed_messages_become_is_bounded_though_the_window_is_not_used_up() {
        let mut pair = Pair::calling(None);
        pair.server.send_head(pair.stream, &Head { metadata: None, compress: true }).unwrap();
        let zeros = vec![0; MEGABYTE];
        for sent in 0..64 {
            pair.server.send_message(pair.stream, &[&zeros], Compressing::IfShorter).unwrap();
            pair.receive();
            // The failure waits behind the messages that were kept.
            let refused = pair.client.calls.values().any(|call| call.inflow.has_end());
            let waiting = pair.client.waiting;
            assert!(waiting <= WAITING_PER_CALL + MEGABYTE, "{waiting} bytes");
            if refused {
                assert!(sent > 16, "the call may keep some");
                return;
            }
        }
        panic!("64 MiB were kept");
    }
}

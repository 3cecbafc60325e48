//! The server's end of a connection.

use std::collections::HashMap;
use std::sync::Arc;

use nearcall_http::{
    Answer, Asked, Calls, Codec, Encoding, Event, Head, Origins, Out, Outcome, Protocol, Reads, Reply, Request,
    SendError, StreamId,
};
use nearcall_wire::{Failure, FrameHead, Kind, Metadata, rpc_status};
use smallvec::SmallVec;

use super::closing::{Closing, GOODBYE};
use super::frames::{Frames, bare, compresses, credit, message, owned, short, unsent, with_message};
use super::inflow::{Inflow, Outflow};
use super::role::Role;
use crate::errors::LinkError;
use crate::frame::incoming::{INLINE, Incoming};
use crate::frame::outgoing::{CallKey, Compress, Outgoing};
use crate::frame::paths::{Messages, Path, Paths};
use crate::limits::budget::{Account, Charge};
use crate::options::Options;

/// The calls of one client.
#[derive(Debug)]
pub(crate) struct Server<S> {
    paths: Arc<Paths>,
    origins: Arc<Origins>,
    /// Clients may speak every protocol over HTTP, not only gRPC.
    is_open: bool,
    /// The longest message that is accepted, in bytes.
    most: usize,
    account: Arc<Account>,
    /// How messages are compressed for clients that read it, if at all.
    encoding: Option<Encoding>,
    calls: HashMap<StreamId, ServedCall>,
    /// How many of those calls the client has cancelled.
    given_up: usize,
    closing: Closing,
    of: std::marker::PhantomData<fn(S)>,
}

/// A call under way.
#[derive(Debug)]
struct ServedCall {
    /// What the client sends.
    messages: Messages,
    /// What the core does not know yet of the call.
    unbegun: Unbegun,
    /// The client has cancelled the call, and a handler may still work for it.
    given_up: bool,
    /// The whole body is one message, so an empty body is a message, too.
    is_whole: bool,
    reply: Reply,
    inflow: Inflow,
    outflow: Outflow,
}

/// A call that the core does not know yet.
#[derive(Debug)]
enum Unbegun {
    /// The message with the call's arguments has not arrived: the head of the frame that begins the call, and the cost
    /// of its metadata.
    Head(FrameHead, Option<Charge>),
    /// It has, and must be the only one: no handler runs before the client has said that it was.
    Message(Box<OnlyMessage>),
    /// The core knows the call.
    No,
}

#[derive(Debug)]
struct OnlyMessage {
    head: FrameHead,
    message: SmallVec<[u8; INLINE]>,
    compressed: bool,
    /// The cost of all this. A short message costs something as well, as nothing else limits how many there are.
    waits: Charge,
}

impl Unbegun {
    /// Bytes that are kept until the client goes on.
    fn kept(&self) -> usize {
        match self {
            Self::Head(_, waits) => waits.as_ref().map_or(0, Charge::bytes),
            Self::Message(only) => only.waits.bytes(),
            Self::No => 0,
        }
    }

    fn is_known(&self) -> bool {
        matches!(self, Self::No)
    }
}

/// What a request turned out to be.
enum Begun {
    /// A call, how to read its body, and its message if the head of the request held it.
    Call(Box<ServedCall>, Option<Reads>, Option<Vec<u8>>),
    /// A call that ends at once, with this code and message.
    Refused(Reply, u8, String),
    /// Not a call: answered with HTTP's status.
    Foreign(Answer),
}

impl<S: Calls> Server<S> {
    pub(crate) fn new(options: &Options, account: Arc<Account>, is_open: bool) -> Self {
        Self {
            paths: Arc::clone(&options.paths),
            origins: Arc::clone(&options.origins),
            is_open,
            most: usize::try_from(options.max_message).unwrap_or(usize::MAX),
            account,
            encoding: options.compression,
            calls: HashMap::new(),
            given_up: 0,
            closing: Closing::default(),
            of: std::marker::PhantomData,
        }
    }

    /// Decides by its headers what a request is.
    fn begin(&self, stream: StreamId, request: Request<'_>) -> Begun {
        if !self.is_open {
            let (status, why) = match (request.method(), request.codec()) {
                ("POST", Some("proto")) => (0, ""),
                ("POST", Some(_)) => (415, "the codec of messages here is Protobuf: application/grpc+proto"),
                ("POST", None) => {
                    (415, "only gRPC is spoken here: connect with grpc://, or serve http:// there for other clients")
                }
                _ => (405, "only gRPC is spoken here, which calls by POST: serve http:// there for other clients"),
            };
            if status != 0 {
                return Begun::Foreign(Answer::refusal(status, why));
            }
        }
        // A query may grow as much by decompression as a body may.
        let most = self.most.min(self.account.room());
        let mut asked = match Asked::read(request, &self.origins, S::IS_HTTP2, most) {
            Ok(asked) => asked,
            Err(answer) => return Begun::Foreign(answer),
        };
        let reply = Reply::to(&asked, self.encoding);
        let path = request.path().split('?').next().unwrap_or_default();
        let found = match self.find(path, &asked, &reply) {
            Ok(Some(found)) => found,
            Ok(None) => {
                // What answers for unknown methods takes messages to be Protobuf's.
                let fits = asked.protocol == Protocol::Grpc && asked.codec == Codec::Proto;
                let Some(found) = self.paths.of_unknown().filter(|_| fits) else {
                    let meant = self.paths.meant(asked.codec, path).map(|meant| format!(": did you mean {meant}?"));
                    let why = format!("the server has no method {path}{}", meant.unwrap_or_default());
                    return Begun::Refused(reply.with_http_status(404), Failure::UNIMPLEMENTED, why);
                };
                // A name that no client can send.
                asked.metadata.get_or_insert_default().push(":path", path.as_bytes());
                found
            }
            Err(answer) => return Begun::Foreign(answer),
        };
        if let Some((code, why)) = asked.trouble {
            return Begun::Refused(reply, code, why.into_owned());
        }
        let (mut head, mut waits) = (FrameHead::new(Kind::Call, stream), None::<Charge>);
        head.method = found.entry;
        if let Some(timeout) = asked.timeout {
            head.extras_mut().deadline_us = Some(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
        }
        if let Some(metadata) = asked.metadata.take() {
            // No window bounds headers, and a client may repeat a long header at the cost of a byte, so metadata is
            // charged. A little is free: the usual headers must not fail a client's calls when other clients fill the
            // server.
            let Ok(charge) = Incoming::charge(&self.account, metadata.held()) else {
                let why = "the server keeps as much as it may, and the call has metadata".to_owned();
                return Begun::Refused(reply, Failure::RESOURCE_EXHAUSTED, why);
            };
            waits = charge;
            if let Some(charge) = &mut waits {
                charge.set_unfinished(charge.bytes());
            }
            head.extras_mut().metadata = Some(metadata);
        }
        let call = ServedCall {
            messages: found.messages,
            unbegun: Unbegun::Head(head, waits),
            given_up: false,
            is_whole: asked.protocol == Protocol::Connect,
            reply,
            inflow: Inflow::new(stream),
            outflow: Outflow::default(),
        };
        Begun::Call(Box::new(call), asked.reads, asked.by_get)
    }

    /// The method at that path, if the protocol of the request can call it.
    fn find(&self, path: &str, asked: &Asked, reply: &Reply) -> Result<Option<Path>, Answer> {
        let refuse = |status, why: String| Err(reply.refusal(status, &why));
        let found = match self.paths.get(asked.codec, path) {
            Some(found) => found,
            None if self.paths.get(Codec::Proto, path).is_some() => {
                return refuse(415, "the codec of messages here is Protobuf".to_owned());
            }
            None => return Ok(None),
        };
        match asked.protocol {
            Protocol::Connect if found.streams() => {
                let name = asked.codec.name();
                refuse(415, format!("{path} is a stream: post its messages as application/connect+{name}"))
            }
            Protocol::ConnectStream if !found.streams() => {
                let name = asked.codec.name();
                refuse(415, format!("{path} is no stream: post its message as application/{name}"))
            }
            Protocol::Connect if asked.by_get.is_some() && !found.is_safe => {
                refuse(405, format!("{path} may change something: call it by POST"))
            }
            _ => Ok(Some(found)),
        }
    }

    /// Acts on what [`begin`](Self::begin) has decided.
    fn begun(&mut self, session: &mut S, frames: &mut Frames, stream: StreamId, begun: Begun, ended: bool) {
        match begun {
            Begun::Call(mut call, reads, by_get) => {
                // Ends the wait for the answer to the goodbye after `PATIENCE`, or the client could go on beginning
                // calls.
                self.has_parted(session, true);
                if call.messages == Messages::Stream
                    && let Unbegun::Head(head, _) = std::mem::replace(&mut call.unbegun, Unbegun::No)
                {
                    frames.push_back(with_message(head, SmallVec::new(), &self.account));
                }
                let is_whole = call.is_whole;
                self.calls.insert(stream, *call);
                if let Some(reads) = reads {
                    session.read_as(stream, reads);
                }
                if let Some(message) = by_get {
                    let arrived = ArrivedMessage {
                        message: SmallVec::from_vec(message),
                        size: 0,
                        compressed: false,
                        ended: true,
                    };
                    self.message(session, frames, stream, arrived);
                } else if ended && is_whole {
                    let arrived = ArrivedMessage { message: SmallVec::new(), size: 0, compressed: false, ended };
                    self.message(session, frames, stream, arrived);
                } else if ended {
                    self.ended(session, frames, stream);
                }
            }
            Begun::Refused(mut reply, code, why) => {
                session.discard(stream);
                // If the client is gone, it cannot be told.
                let _ = reply.end(session, stream, &Outcome { code, message: &why, ..Outcome::default() });
            }
            Begun::Foreign(answer) => {
                // If the client is gone, it cannot be told.
                let _ = session.answer(stream, answer.status, &answer.fields(), answer.body.as_bytes());
            }
        }
    }

    /// Refuses a call that the core may know.
    fn refuse(&mut self, session: &mut S, frames: &mut Frames, stream: StreamId, code: u8, why: &str) {
        // The status may wait behind replies. Nothing more of the body is kept meanwhile.
        session.discard(stream);
        let Some(mut call) = self.calls.remove(&stream) else { return };
        // If the client is gone, it cannot be told.
        let _ = call.reply.end(session, stream, &Outcome { code, message: why, ..Outcome::default() });
        self.given_up -= usize::from(call.given_up);
        if call.unbegun.is_known() && !call.given_up {
            frames.push_back(bare(Kind::Cancel, stream));
        }
    }

    /// Refuses a call of a method that takes one message: it got none, or a second one.
    fn refuse_count(&mut self, session: &mut S, frames: &mut Frames, stream: StreamId) {
        self.refuse(session, frames, stream, Failure::UNIMPLEMENTED, "the method takes exactly one message");
    }

    fn message(&mut self, session: &mut S, frames: &mut Frames, stream: StreamId, arrived: ArrivedMessage) {
        let ArrivedMessage { message, size, compressed, ended } = arrived;
        let Some(call) = self.calls.get_mut(&stream).filter(|call| !call.given_up) else {
            session.release(stream, size);
            return;
        };
        match std::mem::replace(&mut call.unbegun, Unbegun::No) {
            Unbegun::Head(head, _) => {
                session.release(stream, size);
                if call.messages == Messages::One && !ended {
                    let kept = size_of::<OnlyMessage>() + message.len() + head.metadata().map_or(0, Metadata::held);
                    let mut waits = self.account.charge_anyway(kept);
                    waits.set_unfinished(kept);
                    call.unbegun = Unbegun::Message(Box::new(OnlyMessage { head, message, compressed, waits }));
                    return;
                }
                frames.push_back(with_message(head, message, &self.account).that_was_compressed(compressed));
                if ended {
                    self.ended(session, frames, stream);
                }
            }
            second @ Unbegun::Message(_) => {
                call.unbegun = second;
                self.refuse_count(session, frames, stream);
            }
            Unbegun::No => {
                call.inflow.item(message, size, compressed, frames, &self.account);
                if ended {
                    call.inflow.end(bare(Kind::End, stream), frames);
                }
            }
        }
    }

    /// The client sends no more messages in this call.
    fn ended(&mut self, session: &mut S, frames: &mut Frames, stream: StreamId) {
        let Some(call) = self.calls.get_mut(&stream).filter(|call| !call.given_up) else { return };
        match call.messages {
            Messages::One => match std::mem::replace(&mut call.unbegun, Unbegun::No) {
                none @ Unbegun::Head(..) => {
                    call.unbegun = none;
                    self.refuse_count(session, frames, stream);
                }
                Unbegun::Message(only) => {
                    let OnlyMessage { head, message, compressed, .. } = *only;
                    frames.push_back(with_message(head, message, &self.account).that_was_compressed(compressed));
                }
                Unbegun::No => {}
            },
            Messages::ArgumentsFirst if !call.unbegun.is_known() => {
                let why = "the first message of the stream holds the arguments, and none came";
                self.refuse(session, frames, stream, Failure::INVALID_ARGUMENT, why);
            }
            Messages::Stream | Messages::ArgumentsFirst => {
                call.inflow.end(bare(Kind::End, stream), frames);
            }
        }
    }

    /// Forgets a call, here and in the session.
    fn forget(&mut self, session: &mut S, stream: StreamId) {
        if self.calls.remove(&stream).is_some_and(|call| call.given_up) {
            self.given_up -= 1;
        }
        session.forget(stream);
    }
}

/// A message of a client.
struct ArrivedMessage {
    message: SmallVec<[u8; INLINE]>,
    /// Bytes, as the session counts them.
    size: usize,
    compressed: bool,
    ended: bool,
}

impl<S: Calls> Role for Server<S> {
    type Session = S;

    fn take_in(&mut self, session: &mut S, frames: &mut Frames) -> Result<bool, LinkError> {
        session.limit_decompression(self.account.room());
        let Some(event) = session.next_event().map_err(|broken| LinkError::Broken(broken.why.to_owned()))? else {
            // Once for all that has come, as there may be many of them.
            return Ok(session.let_go(self.account.spare()));
        };
        match event {
            Event::Request { stream, request, ended } => {
                let begun = self.begin(stream, request);
                self.begun(session, frames, stream, begun, ended);
            }
            Event::Message { stream, message, cost, compressed, ended } => {
                let arrived = ArrivedMessage { message: owned(message), size: cost, compressed, ended };
                self.message(session, frames, stream, arrived);
            }
            Event::Ended { stream, .. } => self.ended(session, frames, stream),
            Event::Refused { stream, code, why } => self.refuse(session, frames, stream, code, &why),
            Event::Reset { stream, .. } => match self.calls.get_mut(&stream) {
                Some(call) if call.unbegun.is_known() && !call.given_up => {
                    call.given_up = true;
                    call.inflow.clear();
                    self.given_up += 1;
                    frames.push_back(bare(Kind::Cancel, stream));
                }
                _ => self.forget(session, stream),
            },
            Event::Room { stream } => {
                if let Some(call) = self.calls.get_mut(&stream) {
                    frames.push_back(credit(stream, call.outflow.room()));
                }
            }
            // The stream has its credit: it was refused for the memory.
            Event::MayGoOn { stream } if self.calls.contains_key(&stream) => frames.push_back(credit(stream, 0)),
            Event::Data { stream, cost, .. } => session.release(stream, cost),
            Event::Pong(GOODBYE) => self.closing.part(session),
            // A client that sends GOAWAY ends its calls itself, and then the connection.
            Event::GoAway { .. }
            | Event::Pong(_)
            | Event::Response { .. }
            | Event::StreamsFree
            | Event::MayGoOn { .. } => {}
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
        let (stream, metadata) = (call.number, frame.metadata.as_ref());
        let ok = |metadata| Outcome { metadata, ..Outcome::default() };
        match frame.kind {
            Kind::Head | Kind::Item | Kind::Reply | Kind::End | Kind::Error => {}
            _ => return self.put_other(session, frames, stream, frame),
        }
        let Some(ServedCall { reply, outflow, .. }) = self.calls.get_mut(&stream) else {
            session.forget(stream);
            return Ok(());
        };
        // Messages are compressed only for clients that read the encoding.
        let compress = compresses(frame, self.encoding.is_some());
        match frame.kind {
            Kind::Head => {
                let compress = self.encoding.is_some() || matches!(frame.compress, Compress::Yes | Compress::NotThis);
                reply.head(session, stream, &Head { metadata, compress }).or_else(unsent)
            }
            Kind::Item => {
                let pieces = message(frame)?;
                if frame.compress == Compress::NotThis {
                    // Sends headers that allow later messages to be compressed. An error means that they are out
                    // already, or the client is gone.
                    let _ = reply.head(session, stream, &Head { metadata: None, compress: true });
                }
                let sent = reply.message(session, stream, pieces, compress, out);
                Outflow::sent(Some(outflow), sent, frame.len(), stream, frames)
            }
            Kind::Reply => {
                let sent = reply.message(session, stream, message(frame)?, compress, out).map(drop);
                let sent = sent.and_then(|()| reply.end(session, stream, &ok(metadata)));
                self.end(session, stream, sent)
            }
            Kind::Error => {
                let failure = Failure::decode(short(frame)).unwrap_or_else(Failure::from);
                let details = rpc_status::encode(&failure).unwrap_or_default();
                let outcome = Outcome { code: failure.code, message: &failure.message, details: &details, metadata };
                let sent = reply.end(session, stream, &outcome);
                self.end(session, stream, sent)
            }
            _ => {
                let sent = reply.end(session, stream, &ok(metadata));
                self.end(session, stream, sent)
            }
        }
    }

    fn is_held_up(&self, session: &mut S, call: u32, len: usize) -> bool {
        self.account.spare().is_some_and(|spare| !session.may_go_beyond(call, len, spare))
    }

    fn holds_up(&self, session: &S) -> bool {
        session.holds_up()
    }

    fn has_parted(&mut self, session: &mut S, waits: bool) -> bool {
        self.closing.has_parted(session, waits)
    }

    fn make_room(&mut self, session: &mut S, frames: &mut Frames) -> bool {
        let waiting = self.calls.iter().map(|(&stream, call)| (stream, call.unbegun.kept()));
        let unfinished = waiting.chain(session.longest_unfinished()).filter(|&(_, kept)| kept > 0);
        let Some((stream, _)) = unfinished.max_by_key(|&(_, kept)| kept) else { return false };
        let why = "the server keeps as much as it may, and the message has not come completely";
        self.refuse(session, frames, stream, Failure::RESOURCE_EXHAUSTED, why);
        true
    }

    fn finished(&mut self, session: &mut S, call: u32) {
        if self.calls.get(&call).is_some_and(|call| call.given_up) {
            self.forget(session, call);
        }
    }

    fn given_up(&self) -> usize {
        self.given_up
    }
}

impl<S: Calls> Server<S> {
    /// Handles a frame that is not part of a call's answer.
    fn put_other(
        &mut self,
        session: &mut S,
        frames: &mut Frames,
        stream: StreamId,
        frame: &Outgoing<'_>,
    ) -> Result<(), LinkError> {
        match frame.kind {
            Kind::Credit => {
                if let Some(call) = self.calls.get_mut(&stream) {
                    let release = |stream, taken| session.release(stream, taken);
                    call.inflow.grant(short(frame), stream, release, frames, &self.account);
                }
                Ok(())
            }
            Kind::GoAway => {
                self.closing.say_goodbye(session);
                Ok(())
            }
            // The session answers pings by itself.
            Kind::Pong => Ok(()),
            _ => Err(LinkError::Unfit("a gRPC client cannot be called".into())),
        }
    }

    /// The core has sent the last frame of a call.
    fn end(&mut self, session: &mut S, stream: StreamId, sent: Result<(), SendError>) -> Result<(), LinkError> {
        if let Err(error @ (SendError::Unfit(_) | SendError::TooMuchMetadata { .. } | SendError::TooLong { .. })) = sent
        {
            return unsent(error);
        }
        self.forget(session, stream);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nearcall_http::{Options as SessionOptions, Session};

    use super::*;
    use crate::frame::outgoing::Body;
    use crate::limits::budget::Budget;

    /// The last streams that the client's goodbyes named.
    fn goodbyes(server: &mut Session, client: &mut Session) -> Vec<StreamId> {
        client.feed(server.unsent());
        server.sent(server.queued());
        let mut found = Vec::new();
        while let Some(event) = client.next_event().unwrap() {
            found.extend(if let Event::GoAway { last, .. } = event { Some(last) } else { None });
        }
        found
    }

    #[test]
    fn a_connection_that_is_closed_at_once_names_the_last_call_it_took() {
        let (mut session, mut client) =
            (Session::server(SessionOptions::default()), Session::client(SessionOptions::default()));
        let account = Account::of(&Budget::new(1 << 30), 1 << 30);
        let mut server = Server::new(&Options::default(), account, false);
        let mut frames = Frames::new();
        assert!(server.has_parted(&mut session, true), "nobody has said goodbye");
        let goodbye = Outgoing::new(Kind::GoAway, Body::Whole(&[]));
        for _ in 0..2 {
            server.put(&mut session, &mut frames, CallKey { number: 0, side: 0 }, &goodbye, &mut |_| 0).unwrap();
        }
        assert_eq!(goodbyes(&mut session, &mut client), [u32::MAX >> 1]);
        assert!(!server.has_parted(&mut session, true));
        assert!(server.has_parted(&mut session, false));
        assert_eq!(goodbyes(&mut session, &mut client), [0]);
        assert!(server.has_parted(&mut session, true));
        assert!(goodbyes(&mut session, &mut client).is_empty());
    }
}

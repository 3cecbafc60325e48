//! DATA, and what its frames make: messages, or parts of other bodies.

use std::borrow::Cow;

use crate::code::{Broken, Code};
use crate::event::Ending;
use crate::frame::{FrameHead, flag, without_padding};
use crate::grpc::{Decompressor, PREFIX, Piece, TooLong};

use super::stream::{Body, Declared};
use super::{Notice, Ready, Session, StreamId};

/// A DATA frame that is being handed out. Its bytes are the next of the input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arriving {
    stream: StreamId,
    /// Bytes that are left of it.
    left: usize,
    /// Bytes of padding after it.
    padding: usize,
    ended: bool,
}

const INTERNAL: u8 = 13;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;

impl Session {
    /// A DATA frame, whose head has been skipped.
    pub(super) fn data(&mut self, head: FrameHead) -> Result<(), Broken> {
        let payload = without_padding(head, &self.input.data()[..head.len])?;
        let (left, before) = (payload.len(), usize::from(head.has(flag::PADDED)));
        let (id, ended, padding) = (head.stream, head.has(flag::END_STREAM), head.len - left - before);
        // The connection's window is given back on receipt, whatever becomes of the bytes.
        self.receive_window -= head.len as i64;
        if self.receive_window < 0 {
            return Err(Broken::new(Code::FLOW_CONTROL_ERROR, "the peer sends more than the connection's window"));
        }
        self.receive_credit += head.len;
        self.replenish();
        if left == 0 && !ended {
            self.patience.spend("the peer sends too many empty frames")?;
        }
        let window = self.options.stream_window;
        let Some(stream) = self.streams.get_mut(&id) else {
            self.input.skip(head.len);
            if left > 0 && self.was_under_way(id, left) {
                return Ok(());
            }
            return self.on_closed(id);
        };
        let incoming = &mut stream.incoming;
        let fault = if incoming.is_ended {
            Some(Code::STREAM_CLOSED)
        } else if !self.is_server && !incoming.has_head {
            Some(Code::PROTOCOL_ERROR)
        } else if incoming.window < head.len as i64 {
            Some(Code::FLOW_CONTROL_ERROR)
        } else {
            let rest = incoming.content_left.map(|announced| announced.checked_sub(left as u64));
            incoming.content_left = rest.flatten();
            // More than was announced, or less.
            (rest == Some(None) || (ended && incoming.content_left.is_some_and(|rest| rest > 0)))
                .then_some(Code::PROTOCOL_ERROR)
        };
        if let Some(code) = fault {
            self.input.skip(head.len);
            return self.fail_stream(id, code);
        }
        incoming.window -= head.len as i64;
        let more = incoming.give_back(head.len - left, window);
        self.grant(id, more);
        self.input.skip(before);
        self.arriving = Some(Arriving { stream: id, left, padding, ended });
        Ok(())
    }

    /// What the frame that has arrived has next for the owner. `None` when nothing of it is left.
    pub(super) fn hand_out(&mut self) -> Option<Ready> {
        let mut frame = self.arriving.take()?;
        let id = frame.stream;
        let body = self.streams.get(&id).map_or(Body::Discarded, |stream| stream.incoming.body);
        let ready = match body {
            _ if frame.left == 0 => None,
            Body::Messages => self.next_message(&mut frame),
            Body::Raw => {
                let len = std::mem::take(&mut frame.left);
                self.input.skip(len);
                self.stream(id).incoming.unreleased += len;
                self.patience.earn(1);
                // The end of a client's call is an event by itself.
                Some(Ready::Raw { stream: id, len, ended: frame.ended })
            }
            Body::Discarded => {
                self.input.skip(std::mem::take(&mut frame.left));
                None
            }
        };
        if frame.left > 0 {
            self.arriving = Some(frame);
            return ready;
        }
        let is_last = frame.ended && ready.is_some();
        if frame.ended {
            self.end_of_body(id, is_last);
        }
        if frame.padding > 0 {
            // The bytes of the event are found before those that were skipped last, so the padding goes first next time.
            if ready.is_some() {
                self.arriving = Some(Arriving { left: 0, ended: false, ..frame });
            } else {
                self.input.skip(frame.padding);
            }
        }
        ready
    }

    /// The next message of a frame that has bytes left, if one is complete.
    fn next_message(&mut self, frame: &mut Arriving) -> Option<Ready> {
        let (id, limit, window) = (frame.stream, self.options.max_message, self.options.stream_window);
        let incoming = &mut self.streams.get_mut(&id).expect("hand_out has looked").incoming;
        let before = incoming.assembler.held();
        let (taken, piece) = incoming.assembler.take(&self.input.data()[..frame.left], limit);
        self.assembling = self.assembling + incoming.assembler.held() - before;
        self.input.skip(taken);
        frame.left -= taken;
        let (is_compressed, message, len) = match piece {
            Piece::Here { is_compressed, len } => (is_compressed, None, len),
            Piece::Whole { is_compressed, message } => (is_compressed, Some(message), 0),
            Piece::Unfinished => {
                let more = incoming.lend(window);
                self.grant(id, more);
                return None;
            }
            Piece::TooLong(len) => {
                let why = format!("the message has {len} bytes, the limit is {limit}");
                self.refuse_call(frame, RESOURCE_EXHAUSTED, why.into());
                return None;
            }
            Piece::Malformed => {
                self.refuse_call(frame, INTERNAL, "the flag before a message is none of gRPC's".into());
                return None;
            }
        };
        let cost = PREFIX + message.as_ref().map_or(len, Vec::len);
        let message = if is_compressed {
            let compressed = message.as_deref().unwrap_or_else(|| self.input.skipped(len));
            match decompressed(incoming.declared, compressed, limit.min(self.most_decompressed)) {
                Ok(message) => Some(message),
                Err((code, why)) => {
                    self.refuse_call(frame, code, why);
                    return None;
                }
            }
        } else {
            message
        };
        incoming.unreleased += cost;
        self.patience.earn(1);
        // A client hears of the end by the status.
        let ended = frame.ended && frame.left == 0 && self.is_server;
        Some(match message {
            Some(message) => Ready::Whole { stream: id, message, cost, ended },
            None => Ready::Here { stream: id, len, cost, ended },
        })
    }

    /// Says no to a call because of a message, and to the rest of its body.
    fn refuse_call(&mut self, frame: &mut Arriving, code: u8, why: Cow<'static, str>) {
        self.input.skip(std::mem::take(&mut frame.left));
        self.notices.push_back(Notice::Refused(frame.stream, code, why));
        if self.is_server {
            self.discard(frame.stream);
        } else {
            self.reset(frame.stream, Code::CANCEL);
        }
    }

    /// Throws away what is there, and what comes, of a stream's body.
    pub fn discard(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let assembler = std::mem::take(&mut stream.incoming.assembler);
            stream.incoming.body = Body::Discarded;
            self.assembling -= assembler.held();
        }
    }

    /// The peer has sent its last frame on a stream. `is_told`: an event that says so is on its way.
    pub(super) fn end_of_body(&mut self, id: StreamId, is_told: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let incoming = &mut stream.incoming;
        incoming.is_ended = true;
        let is_inside = incoming.assembler.is_inside();
        match (incoming.body, self.is_server) {
            (Body::Discarded, _) => {}
            (Body::Messages, true) if is_inside => {
                self.notices.push_back(Notice::Refused(id, INTERNAL, "the request ends inside of a message".into()));
                self.discard(id);
            }
            (Body::Messages, false) => {
                let message = "the response ended without a status".to_owned();
                self.finish_call(id, Ending::Status { code: INTERNAL, message, details: Vec::new(), metadata: None });
                return;
            }
            _ if is_told => {}
            _ => self.notices.push_back(Notice::Ended(id, Ending::Plain)),
        }
        self.close_if_ended(id);
    }

    /// Client: a call is over. What it had to send is wanted no longer.
    pub(super) fn finish_call(&mut self, id: StreamId, ending: Ending) {
        let Some(stream) = self.remove(id) else { return };
        if stream.incoming.is_ended && stream.outgoing.is_ended {
            Self::remember(&mut self.ended, id);
        } else {
            self.put_reset(id, Code::CANCEL);
        }
        self.patience.earn(1);
        self.notices.push_back(Notice::Ended(id, ending));
    }
}

/// A compressed message, or the status of its call.
fn decompressed(declared: Declared, bytes: &[u8], limit: usize) -> Result<Vec<u8>, (u8, Cow<'static, str>)> {
    let encoding = match declared {
        Declared::Known(encoding) => encoding,
        Declared::Nothing => {
            return Err((INTERNAL, "a message is compressed, but grpc-encoding does not say how".into()));
        }
        Declared::Unknown => {
            return Err((UNIMPLEMENTED, "messages may be compressed with gzip or zstd, with nothing else".into()));
        }
    };
    Decompressor::run(encoding, bytes, limit).map_err(|error| match error {
        TooLong::Yes => (
            RESOURCE_EXHAUSTED,
            format!("the message has more than {limit} bytes when it is decompressed, and no more are kept now").into(),
        ),
        TooLong::Broken => (INTERNAL, format!("a message is not what {} makes", encoding.name()).into()),
    })
}

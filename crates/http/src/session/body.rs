//! DATA frames: makes messages of them, or parts of other bodies.

use std::borrow::Cow;

use nearcall_wire::Failure;

use crate::code::{Broken, Code};
use crate::event::{Ending, StreamId};
use crate::frame::{FrameHead, flag, without_padding};
use crate::grpc::PREFIX;
use crate::reading::{Body, Given, Limits, Reads};

use super::partial::Arriving;
use super::{Notice, Ready, Session};

impl Session {
    /// Handles a DATA frame, whose head has been skipped in the input.
    pub(super) fn data(&mut self, head: FrameHead) -> Result<(), Broken> {
        let payload = without_padding(head, &self.input.data()[..head.len])?;
        let (left, before) = (payload.len(), usize::from(head.has(flag::PADDED)));
        let (id, ended, padding) = (head.stream, head.has(flag::END_STREAM), head.len - left - before);
        // Credit for the connection's window is returned on receipt, whatever happens to the bytes.
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

    /// The next event in the frame that is being handed out. `None` if the frame has no more.
    pub(super) fn hand_out(&mut self) -> Option<Ready> {
        let mut frame = self.arriving.take()?;
        let id = frame.stream;
        let body = self.streams.get(&id).map_or(Body::Discarded, |stream| stream.incoming.reader.body);
        let ready = match body {
            _ if frame.left == 0 => None,
            Body::Messages | Body::Stream | Body::Text | Body::Whole => self.next_message(&mut frame),
            Body::Raw => {
                let len = std::mem::take(&mut frame.left);
                self.input.skip(len);
                self.stream(id).incoming.unreleased += len;
                self.patience.earn(1);
                // A client's call ends with an event of its own.
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
            // The event finds its bytes right before the input's position, so the padding is skipped only next time.
            if ready.is_some() {
                self.arriving = Some(Arriving { left: 0, ended: false, ..frame });
            } else {
                self.input.skip(frame.padding);
            }
        }
        ready
    }

    /// The next message in a frame that has bytes left, if one is complete.
    fn next_message(&mut self, frame: &mut Arriving) -> Option<Ready> {
        let (id, limits, window) = (frame.stream, self.limits(), self.options.stream_window);
        let incoming = &mut self.streams.get_mut(&id).expect("hand_out has looked").incoming;
        let before = incoming.reader.held();
        let body = incoming.reader.body;
        let is_counted = matches!(body, Body::Messages | Body::Stream);
        let (taken, given) = incoming.reader.take(&self.input.data()[..frame.left], frame.ended, limits);
        self.assembling = self.assembling + incoming.reader.held() - before;
        self.input.skip(taken);
        frame.left -= taken;
        if !is_counted {
            // Credit is returned at once: the limit on messages bounds what is kept.
            let more = incoming.give_back(taken, window);
            self.grant(id, more);
        }
        let incoming = &mut self.streams.get_mut(&id).expect("hand_out has looked").incoming;
        let (message, len) = match given {
            Given::Here(len) => (None, len),
            Given::Message { message, len, compressed } => (Some((message, compressed)), len),
            Given::Nothing | Given::End(_) => {
                if is_counted {
                    let more = incoming.lend(window);
                    self.grant(id, more);
                }
                return None;
            }
            Given::Refused(code, why) => {
                self.refuse_call(frame, code, why);
                return None;
            }
        };
        let cost = if is_counted { PREFIX + len } else { 0 };
        incoming.unreleased += cost;
        self.patience.earn(1);
        // A gRPC client learns of the end from the status.
        let tells = self.is_server || body != Body::Messages;
        let ended = frame.ended && frame.left == 0 && tells && !incoming.reader.is_inside();
        Some(match message {
            Some((message, compressed)) => Ready::Whole { stream: id, message, cost, compressed, ended },
            None => Ready::Here { stream: id, len, cost, ended },
        })
    }

    /// The most that a message may have now.
    fn limits(&self) -> Limits {
        Limits { message: self.options.max_message, decompressed: self.most_decompressed, name: self.options.limit }
    }

    /// Sets how to read a body that is not gRPC's, of a request or a response. To be called before the next event.
    pub fn read_as(&mut self, id: StreamId, reads: Reads) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.incoming.reader.read_as(reads);
        }
    }

    /// Refuses a call because of a message, and drops the rest of its body.
    fn refuse_call(&mut self, frame: &mut Arriving, code: u8, why: Cow<'static, str>) {
        self.input.skip(std::mem::take(&mut frame.left));
        self.notices.push_back(Notice::Refused(frame.stream, code, why));
        if self.is_server {
            self.discard(frame.stream);
        } else {
            self.reset(frame.stream, Code::CANCEL);
        }
    }

    /// Drops what has arrived of a stream's body, and what follows.
    pub fn discard(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            self.assembling -= stream.incoming.reader.held();
            stream.incoming.reader.discard();
        }
    }

    /// The peer has sent its last frame on a stream. `is_told`: an event that says so is on its way.
    pub(super) fn end_of_body(&mut self, id: StreamId, is_told: bool) {
        let (is_server, limits) = (self.is_server, self.limits());
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let incoming = &mut stream.incoming;
        incoming.is_ended = true;
        match (incoming.reader.body, is_server) {
            (Body::Discarded, _) => {}
            (Body::Messages, false) => {
                let message = "the response ended without a status".to_owned();
                self.finish_call(
                    id,
                    Ending::Status { code: Failure::INTERNAL, message, details: Vec::new(), metadata: None },
                );
                return;
            }
            _ => {
                let before = incoming.reader.held();
                let given =
                    if is_told && !incoming.reader.is_inside() { None } else { Some(incoming.reader.end(limits)) };
                self.assembling = self.assembling + incoming.reader.held() - before;
                match given {
                    None => {}
                    Some(Given::Message { message, compressed, .. }) => {
                        self.notices.push_back(Notice::Last(id, message, compressed));
                    }
                    Some(Given::Refused(code, why)) => {
                        self.notices.push_back(Notice::Refused(id, code, why));
                        self.discard(id);
                    }
                    Some(Given::End(end)) => self.notices.push_back(Notice::Ended(id, Ending::Stream(end))),
                    Some(_) => self.notices.push_back(Notice::Ended(id, Ending::Plain)),
                }
            }
        }
        self.close_if_ended(id);
    }

    /// Client: a call is over. The server needs no more of what the call was to send.
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

//! Handles the frames that arrive.

use crate::code::{Broken, Code};
use crate::frame::{self, FrameHead, HEAD, HIGHEST, LONGEST, PREFACE, flag, kind, number, wrong_size};

use super::parting::LONGEST_WORDS;
use super::stream::Stream;
use super::{Notice, Ready, Session, StreamId};

fn protocol_error(why: &'static str) -> Broken {
    Broken::new(Code::PROTOCOL_ERROR, why)
}

impl Session {
    /// The next event, if what has arrived makes one.
    pub(super) fn step(&mut self) -> Result<Option<Ready>, Broken> {
        if let Some(broken) = self.over {
            return Err(broken);
        }
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Ok(Some(Ready::Notice(notice)));
            }
            if self.arriving.is_some() {
                if let Some(ready) = self.hand_out() {
                    return Ok(Some(ready));
                }
                continue;
            }
            if !self.is_greeted && !self.read_preface()? {
                return Ok(None);
            }
            let Some(head) = self.input.data().first_chunk::<HEAD>() else { return Ok(None) };
            let head = FrameHead::decode(head);
            if head.len > LONGEST {
                return Err(Broken::new(Code::FRAME_SIZE_ERROR, "a frame is longer than this side allows"));
            }
            if self.input.len() < HEAD + head.len {
                return Ok(None);
            }
            self.input.skip(HEAD);
            if let Some(ready) = self.frame(head)? {
                return Ok(Some(ready));
            }
        }
    }

    fn read_preface(&mut self) -> Result<bool, Broken> {
        let data = self.input.data();
        let len = data.len().min(PREFACE.len());
        if data[..len] != PREFACE[..len] {
            return Err(protocol_error("the peer does not speak HTTP/2"));
        }
        if len < PREFACE.len() {
            return Ok(false);
        }
        self.input.skip(len);
        self.is_greeted = true;
        Ok(true)
    }

    /// Handles one frame, whose head has been skipped and whose payload has arrived.
    fn frame(&mut self, head: FrameHead) -> Result<Option<Ready>, Broken> {
        let is_first =
            (head.kind == kind::SETTINGS && !head.has(flag::ACK)) || (head.kind == kind::GOAWAY && !self.is_server);
        if !self.is_settled && !is_first {
            return Err(protocol_error("the peer does not begin with its settings"));
        }
        if self.block.as_ref().is_some_and(|block| head.kind != kind::CONTINUATION || head.stream != block.stream) {
            return Err(protocol_error("there is another frame inside of a header block"));
        }
        if head.kind == kind::DATA {
            return self.data(head).map(|()| None);
        }
        self.input.skip(head.len);
        match head.kind {
            kind::HEADERS => return self.headers(head),
            kind::CONTINUATION => return self.continuation(head),
            kind::PRIORITY => self.priority(head)?,
            kind::RST_STREAM => self.reset_by_peer(head)?,
            kind::SETTINGS => self.settings(head)?,
            kind::PUSH_PROMISE => return Err(protocol_error("nobody may push here")),
            kind::PING => self.pinged(head)?,
            kind::GOAWAY => self.goaway(head)?,
            kind::WINDOW_UPDATE => self.window_update(head)?,
            // Extensions are ignored, but not for ever.
            _ => self.patience.spend("the peer sends too many frames of unknown kinds")?,
        }
        Ok(None)
    }

    /// Whether the stream was never begun.
    pub(super) fn is_idle(&self, id: StreamId) -> bool {
        id > self.highest || id.is_multiple_of(2)
    }

    fn priority(&mut self, head: FrameHead) -> Result<(), Broken> {
        self.patience.spend("the peer changes priorities too often")?;
        if head.stream == 0 {
            return Err(protocol_error("a priority is for no stream"));
        }
        let Some(dependency) = self.input.skipped(head.len).first_chunk().filter(|_| head.len == 5) else {
            if self.is_idle(head.stream) {
                return Err(wrong_size());
            }
            return self.fail_stream(head.stream, Code::FRAME_SIZE_ERROR);
        };
        // Priorities have no meaning any more, but this one was never valid.
        if u32::from_be_bytes(*dependency) & HIGHEST == head.stream {
            if self.is_idle(head.stream) {
                return Err(protocol_error("a stream depends on itself"));
            }
            return self.fail_stream(head.stream, Code::PROTOCOL_ERROR);
        }
        Ok(())
    }

    fn reset_by_peer(&mut self, head: FrameHead) -> Result<(), Broken> {
        let code = Code(number(self.input.skipped(head.len))?);
        if self.is_idle(head.stream) {
            return Err(protocol_error("a stream is reset that was never begun"));
        }
        let Some(stream) = self.remove(head.stream) else {
            return self.patience.spend("the peer resets too many streams that are closed");
        };
        if !stream.outgoing.has_sent {
            self.patience.spend("the peer cancels too many calls")?;
        }
        Self::remember(&mut self.ended, head.stream);
        self.tell_reset(head.stream, &stream, code);
        Ok(())
    }

    fn settings(&mut self, head: FrameHead) -> Result<(), Broken> {
        if head.stream != 0 {
            return Err(protocol_error("settings are for a stream"));
        }
        if head.has(flag::ACK) {
            self.patience.spend("the peer acknowledges too many settings")?;
            return if head.len == 0 { Ok(()) } else { Err(wrong_size()) };
        }
        let before = self.peer;
        self.peer.update(self.input.skipped(head.len), self.is_server)?;
        if self.is_settled {
            self.patience.spend("the peer changes its settings too often")?;
        }
        self.is_settled = true;
        self.encoder.set_limit(self.peer.header_table_size as usize);
        let change = i64::from(self.peer.initial_window_size) - i64::from(before.initial_window_size);
        if change != 0 {
            for (&id, stream) in &mut self.streams {
                stream.outgoing.window += change;
                if stream.outgoing.window > i64::from(HIGHEST) {
                    return Err(Broken::new(Code::FLOW_CONTROL_ERROR, "a window is too large"));
                }
                Self::schedule(&mut self.scheduled, id, stream);
            }
        }
        self.output.reply(kind::SETTINGS, flag::ACK, 0, &[])?;
        if self.wants_streams && self.has_free_streams() {
            self.wants_streams = false;
            self.notices.push_back(Notice::StreamsFree);
        }
        self.pump();
        Ok(())
    }

    fn pinged(&mut self, head: FrameHead) -> Result<(), Broken> {
        if head.stream != 0 {
            return Err(protocol_error("a ping is for a stream"));
        }
        let token: [u8; 8] = self.input.skipped(head.len).try_into().map_err(|_| wrong_size())?;
        self.patience.spend("the peer pings too often")?;
        if head.has(flag::ACK) {
            self.notices.push_back(Notice::Pong(token));
            return Ok(());
        }
        self.output.reply(kind::PING, flag::ACK, 0, &token)
    }

    fn goaway(&mut self, head: FrameHead) -> Result<(), Broken> {
        if head.stream != 0 {
            return Err(protocol_error("a goodbye is for a stream"));
        }
        let (body, words) = self.input.skipped(head.len).split_first_chunk::<8>().ok_or(wrong_size())?;
        let [a, b, c, d, code @ ..] = *body;
        let why = String::from_utf8_lossy(&words[..words.len().min(LONGEST_WORDS)]).into_owned();
        let (last, code) = (u32::from_be_bytes([a, b, c, d]) & HIGHEST, Code(u32::from_be_bytes(code)));
        self.patience.spend("the peer says goodbye too often")?;
        // A later GOAWAY may name a lower stream, never a higher one.
        let last = self.going_away.map_or(last, |before| before.min(last));
        self.going_away = Some(last);
        self.notices.push_back(Notice::GoAway(last, code, why));
        if !self.is_server {
            let mut lost: Vec<_> = self.streams.keys().copied().filter(|&id| id > last).collect();
            lost.sort_unstable();
            for id in lost {
                self.remove(id);
                Self::remember(&mut self.ended, id);
                self.notices.push_back(Notice::Reset(id, Code::REFUSED_STREAM, true));
            }
        }
        Ok(())
    }

    fn window_update(&mut self, head: FrameHead) -> Result<(), Broken> {
        let more = i64::from(number(self.input.skipped(head.len))? & HIGHEST);
        self.patience.spend("the peer changes its windows too often")?;
        if head.stream == 0 {
            if more == 0 {
                return Err(protocol_error("a window is enlarged by nothing"));
            }
            self.send_window += more;
            if self.send_window > i64::from(HIGHEST) {
                return Err(Broken::new(Code::FLOW_CONTROL_ERROR, "the connection's window is too large"));
            }
        } else {
            if self.is_idle(head.stream) {
                return Err(protocol_error("a window is enlarged of a stream that was never begun"));
            }
            if more == 0 {
                return self.fail_stream(head.stream, Code::PROTOCOL_ERROR);
            }
            let Some(stream) = self.streams.get_mut(&head.stream) else { return Ok(()) };
            stream.outgoing.window += more;
            if stream.outgoing.window > i64::from(HIGHEST) {
                return self.fail_stream(head.stream, Code::FLOW_CONTROL_ERROR);
            }
            Self::schedule(&mut self.scheduled, head.stream, stream);
        }
        self.pump();
        Ok(())
    }

    /// Handles a frame for a stream that does not exist any more.
    ///
    /// # Errors
    /// The stream was never begun.
    pub(super) fn on_closed(&mut self, id: StreamId) -> Result<(), Broken> {
        if self.is_idle(id) {
            return Err(protocol_error("a frame is for a stream that was never begun"));
        }
        self.patience.spend("the peer sends too much for streams that are closed")?;
        // Frames that were on their way when this side reset the stream are expected. A client knows that it has begun
        // all its streams.
        if !self.is_server || self.is_reset(id) {
            return Ok(());
        }
        self.refuse(id, Code::STREAM_CLOSED)
    }

    /// Tells the peer that its window for a stream has grown.
    pub(super) fn grant(&mut self, id: StreamId, more: Option<usize>) {
        if let Some(more) = more {
            frame::put(self.output.buffer(), kind::WINDOW_UPDATE, 0, id, &(more as u32).to_be_bytes());
        }
    }

    /// Returns credit for the connection's window for bytes that were received.
    pub(super) fn replenish(&mut self) {
        if !self.holds_credit && self.receive_credit >= self.options.connection_window as usize / 2 {
            let more = std::mem::take(&mut self.receive_credit);
            self.receive_window += more as i64;
            self.grant(0, Some(more));
        }
    }

    /// A stream that the caller knows to exist.
    pub(super) fn stream(&mut self, id: StreamId) -> &mut Stream {
        self.streams.get_mut(&id).expect("whoever asks has looked")
    }
}

//! Sends responses, messages and other frames for the owner.

use std::collections::VecDeque;

use nearcall_wire::Metadata;

use crate::code::Code;
use crate::event::{Head, Outcome, SendError, Sent, StreamId};
use crate::frame::{HEAD, LONGEST, flag, kind, put, put_head};
use crate::grpc::{self, Compressing, Compressor, Encodings, PREFIX};
use crate::hpack::{Encoder, Keep, OVERHEAD};

use super::Session;
use super::output::HIGH;
use super::stream::{End, Stream, Trailers};

/// Sending so many bytes makes up for one change of a window.
const BYTES_FOR_UPDATE: usize = 64;

impl Session {
    /// Server: sends the headers of a gRPC response. Optional: the first message sends headers without metadata, and a
    /// call that consists of a status only needs none.
    ///
    /// # Errors
    /// [`SendError::Gone`], also if headers were sent already; [`SendError::Unfit`], [`SendError::TooMuchMetadata`].
    pub fn send_head(&mut self, id: StreamId, head: &Head<'_>) -> Result<(), SendError> {
        let metadata = self.fit(head.metadata)?;
        let stream = self.streams.get_mut(&id).ok_or(SendError::Gone)?;
        if stream.outgoing.has_head || stream.outgoing.is_closed() {
            return Err(SendError::Gone);
        }
        let (accepts, content_type) = (stream.outgoing.accepts, stream.outgoing.content_type);
        let wanted =
            self.options.encoding.map_or_else(|| accepts.best(), |one| Some(one).filter(|&one| accepts.has(one)));
        let encoding = wanted.filter(|_| head.compress);
        (stream.outgoing.has_head, stream.outgoing.encoding) = (true, encoding);
        self.put_block(id, false, |encoder, out| {
            encoder.field(out, ":status", b"200", Keep::Yes);
            encoder.field(out, "content-type", content_type.as_bytes(), Keep::Yes);
            encoder.field(out, "grpc-accept-encoding", Encodings::ACCEPTED.as_bytes(), Keep::Yes);
            if let Some(encoding) = encoding {
                encoder.field(out, "grpc-encoding", encoding.name().as_bytes(), Keep::Yes);
            }
            put_metadata(encoder, out, metadata.as_ref());
        });
        Ok(())
    }

    /// Sends a message, whose bytes are `pieces` end to end. It is accepted however much waits, so the owner has to
    /// look at the result. `compress` has an effect if the stream's headers have named an encoding; a server's first
    /// message makes the headers do so.
    ///
    /// # Errors
    /// Nothing was accepted: [`SendError::Gone`], [`SendError::TooLong`].
    pub fn send_message(&mut self, id: StreamId, pieces: &[&[u8]], compress: Compressing) -> Result<Sent, SendError> {
        self.message(id, pieces, compress, false, &mut |_| 0)
    }

    /// Like `send_message`, but writes a long message directly: `out` is shown bytes and returns how many it has
    /// written. So a message of megabytes need not be copied whole if nothing else waits. `last`: a client's last
    /// message of a call, in one frame with its end.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_message_through(
        &mut self,
        id: StreamId,
        pieces: &[&[u8]],
        compress: Compressing,
        last: bool,
        out: Out<'_>,
    ) -> Result<Sent, SendError> {
        self.message(id, pieces, compress, last, out)
    }

    /// Client: sends the last message of a call, in one frame with its end.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_last_message(
        &mut self,
        id: StreamId,
        pieces: &[&[u8]],
        compress: Compressing,
    ) -> Result<Sent, SendError> {
        self.message(id, pieces, compress, true, &mut |_| 0)
    }

    fn message(
        &mut self,
        id: StreamId,
        pieces: &[&[u8]],
        compress: Compressing,
        last: bool,
        out: Out<'_>,
    ) -> Result<Sent, SendError> {
        let stream = self.sendable(id)?;
        if !stream.outgoing.has_head {
            // The next message may be compressed, even if this one is not.
            self.send_head(
                id,
                &Head { metadata: None, compress: compress != Compressing::No || self.options.encoding.is_some() },
            )?;
        }
        let compressed = Compressor::compressed(self.stream(id).outgoing.encoding, compress, pieces);
        let whole = compressed.as_ref().map(|compressed| [&compressed[..]]);
        let pieces = whole.as_ref().map_or(pieces, |whole| &whole[..]);
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let [a, b, c, d] = u32::try_from(len).map_err(|_| SendError::TooLong { len })?.to_be_bytes();
        let prefix = [u8::from(compressed.is_some()), a, b, c, d];
        Ok(self.body(id, Pieces::new(&prefix, pieces), PREFIX + len, last, out))
    }

    /// The stream, if it can send bytes now.
    fn sendable(&mut self, id: StreamId) -> Result<&mut Stream, SendError> {
        let stream = self.streams.get_mut(&id).ok_or(SendError::Gone)?;
        if stream.outgoing.is_closed() {
            return Err(SendError::Gone);
        }
        Ok(stream)
    }

    /// Adds bytes of a body: directly to frames as far as possible; the rest waits for its turn.
    fn body(&mut self, id: StreamId, mut bytes: Pieces<'_>, len: usize, last: bool, out: Out<'_>) -> Sent {
        let limit = self.options.send_queue;
        let stream = self.streams.get_mut(&id).expect("sendable has looked");
        let outgoing = &mut stream.outgoing;
        outgoing.has_sent = true;
        let may_go_beyond = std::mem::take(&mut outgoing.may_go_beyond);
        let mut left = len;
        // A short body may overtake waiting bytes of other streams, a long one may not.
        while left > 0 && outgoing.left() == 0 && (left + self.output.len() <= HIGH || self.waiting == 0) {
            let room = outgoing.window.min(self.send_window).max(0) as usize;
            let now = left.min(room).min(HIGH.saturating_sub(self.output.len()));
            // A body that goes out in parts does so in whole frames.
            let now = if now < left { now - now % LONGEST } else { now };
            if now == 0 {
                break;
            }
            left -= now;
            outgoing.window -= now as i64;
            self.send_window -= now as i64;
            put_data(self.output.buffer(), id, &mut bytes, now, last && left == 0);
            self.patience.earn((now / BYTES_FOR_UPDATE) as u32);
            if left > 0 {
                let taken = out(self.output.unsent());
                self.output.sent(taken, true);
            }
        }
        if left == 0 && len > 0 {
            self.patience.earn(1);
            if last {
                self.end_of_sending(id);
            }
            return Sent::Ready;
        }
        let tail = outgoing.tail();
        tail.reserve(left);
        while let Some(piece) = bytes.next(left) {
            tail.extend_from_slice(piece);
        }
        self.waiting += left;
        if may_go_beyond {
            outgoing.beyond += left;
            self.beyond += left;
        }
        if last {
            outgoing.end = Some(End::Plain);
            self.finished += outgoing.left();
        }
        Self::schedule(&mut self.scheduled, id, stream);
        self.pump();
        let Some(stream) = self.streams.get_mut(&id) else { return Sent::Ready };
        if stream.outgoing.left() < limit {
            return Sent::Ready;
        }
        stream.outgoing.wants_room = true;
        Sent::Full
    }

    /// Server: ends a gRPC call, after the messages that wait. The owner's stream is gone, and
    /// [forgotten](Self::forget) if the peer had reset it.
    ///
    /// # Errors
    /// [`SendError::Gone`]; after [`SendError::Unfit`] and [`SendError::TooMuchMetadata`] the stream is still there.
    pub fn send_status(&mut self, id: StreamId, outcome: &Outcome<'_>) -> Result<(), SendError> {
        let metadata = self.fit(outcome.metadata)?;
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.outgoing.is_closed()) else {
            self.forget(id);
            return Err(SendError::Gone);
        };
        if stream.outgoing.left() > 0 {
            let trailers = Box::new(Trailers {
                code: outcome.code,
                message: outcome.message.to_owned(),
                details: outcome.details.to_vec(),
                metadata,
            });
            self.waiting += trailers.cost();
            stream.outgoing.end = Some(End::Trailers(trailers));
            self.finished += stream.waiting();
            return Ok(());
        }
        self.put_status(id, outcome, metadata.as_ref());
        Ok(())
    }

    fn put_status(&mut self, id: StreamId, outcome: &Outcome<'_>, metadata: Option<&Metadata>) {
        let outgoing = &self.stream(id).outgoing;
        let (has_head, content_type) = (outgoing.has_head, outgoing.content_type);
        self.put_block(id, true, |encoder, out| {
            if !has_head {
                encoder.field(out, ":status", b"200", Keep::Yes);
                encoder.field(out, "content-type", content_type.as_bytes(), Keep::Yes);
                encoder.field(out, "grpc-accept-encoding", Encodings::ACCEPTED.as_bytes(), Keep::Yes);
            }
            let mut digits = [b'0'; 2];
            let code = decimal(outcome.code, &mut digits);
            encoder.field(out, "grpc-status", code, Keep::Yes);
            if !outcome.message.is_empty() {
                let message = grpc::encode_message(outcome.message);
                encoder.field(out, "grpc-message", message.as_bytes(), Keep::No);
            }
            if !outcome.details.is_empty() {
                let details = grpc::encode_value("details-bin", outcome.details).expect("any bytes are good");
                encoder.field(out, "grpc-status-details-bin", &details, Keep::No);
            }
            put_metadata(encoder, out, metadata);
        });
        self.end_of_sending(id);
    }

    /// This side has sent its last frame on the stream.
    fn end_of_sending(&mut self, id: StreamId) {
        let is_server = self.is_server;
        let stream = self.stream(id);
        stream.outgoing.is_ended = true;
        if is_server && !stream.incoming.is_ended {
            // The rest of the request is not needed.
            self.remove(id);
            self.put_reset(id, Code::NO_ERROR);
        } else {
            self.close_if_ended(id);
        }
    }

    /// Server: sends a whole response that is not gRPC's. Names must be in lower case, values printable.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    pub fn answer(
        &mut self,
        id: StreamId,
        status: u16,
        headers: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<(), SendError> {
        let len = body.len().to_string();
        let headers = [&[("content-length", len.as_bytes())], headers].concat();
        self.respond(id, status, &headers, body.is_empty())?;
        if !body.is_empty() {
            self.send_data(id, &[body], true)?;
        }
        Ok(())
    }

    /// Server: sends the headers of a response that is not gRPC's; the whole response if it `ends` with them.
    ///
    /// # Errors
    /// [`SendError::Gone`], also if headers were sent already.
    pub fn respond(
        &mut self,
        id: StreamId,
        status: u16,
        headers: &[(&str, &[u8])],
        ends: bool,
    ) -> Result<(), SendError> {
        let Some(stream) = self.streams.get_mut(&id).filter(|one| !one.outgoing.is_closed() && !one.outgoing.has_head)
        else {
            self.forget(id);
            return Err(SendError::Gone);
        };
        stream.outgoing.has_head = true;
        let status = status.to_string();
        self.put_block(id, ends, |encoder, out| {
            encoder.field(out, ":status", status.as_bytes(), Keep::Yes);
            for (name, value) in headers {
                encoder.field(out, name, value, Keep::No);
            }
        });
        if ends {
            self.end_of_sending(id);
        }
        Ok(())
    }

    /// Sends a part of a body that is not gRPC's, after [`respond`](Self::respond) or [`request`](Self::request).
    ///
    /// # Errors
    /// [`SendError::Gone`].
    pub fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool) -> Result<Sent, SendError> {
        self.send_data_through(id, pieces, last, &mut |_| 0)
    }

    /// Like `send_data`, but writes long parts directly, as [`send_message_through`](Self::send_message_through) does.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    pub fn send_data_through(
        &mut self,
        id: StreamId,
        pieces: &[&[u8]],
        last: bool,
        out: Out<'_>,
    ) -> Result<Sent, SendError> {
        if !self.sendable(id)?.outgoing.has_head {
            return Err(SendError::Gone);
        }
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if len == 0 {
            if last {
                self.end(id)?;
            }
            return Ok(Sent::Ready);
        }
        Ok(self.body(id, Pieces::new(&[], pieces), len, last, out))
    }

    /// Ends this side of a stream, after what waits. Not for a server's gRPC calls: those end with a status.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    pub fn end(&mut self, id: StreamId) -> Result<(), SendError> {
        let stream = self.streams.get_mut(&id).filter(|stream| !stream.outgoing.is_closed()).ok_or(SendError::Gone)?;
        if stream.outgoing.left() > 0 {
            stream.outgoing.end = Some(End::Plain);
            self.finished += stream.outgoing.left();
            return Ok(());
        }
        put(self.output.buffer(), kind::DATA, flag::END_STREAM, id, &[]);
        self.end_of_sending(id);
        Ok(())
    }

    /// Ends a stream at once, and drops what waits on it. Does nothing if the stream is gone.
    pub fn reset(&mut self, id: StreamId, code: Code) {
        if self.remove(id).is_some() {
            self.put_reset(id, code);
        }
        self.forget(id);
    }

    pub(super) fn put_reset(&mut self, id: StreamId, code: Code) {
        self.remember_reset(id);
        put(self.output.buffer(), kind::RST_STREAM, 0, id, &code.0.to_be_bytes());
    }

    /// Server: no handler works any more for a stream that the peer has reset. Until then it counts as open, so that a
    /// client that cancels quickly cannot cause more work than one that waits.
    pub fn forget(&mut self, id: StreamId) {
        self.held.remove(&id);
    }

    /// The application has taken a message of this cost, so the peer may send as much again. Does nothing if the stream
    /// is gone.
    pub fn release(&mut self, id: StreamId, cost: usize) {
        let window = self.options.stream_window;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let more = stream.incoming.release(cost, window);
        self.grant(id, more);
        let more = self.stream(id).incoming.lend(window);
        self.grant(id, more);
    }

    /// Whether to hold back credit for the connection's window, because too much of the peer's data is kept. Frames
    /// other than DATA still have to be read.
    pub fn hold_credit(&mut self, hold: bool) {
        self.holds_credit = hold;
        self.replenish();
    }

    /// The most bytes that compressed messages may become from now on, if that is less than
    /// [`max_message`](crate::Options::max_message): the windows do not bound this. A call with a longer message is
    /// refused.
    pub fn limit_decompression(&mut self, most: usize) {
        self.most_decompressed = most;
    }

    /// Whether less than [`send_queue`](crate::Options::send_queue) waits on a stream.
    #[must_use]
    pub fn has_room(&self, id: StreamId) -> bool {
        let stream = self.streams.get(&id);
        stream.is_some_and(|one| !one.outgoing.is_closed() && one.outgoing.left() < self.options.send_queue)
    }

    /// For an owner that keeps as much as it may: whether the next message of a stream, of `len` bytes, may be sent all the
    /// same. So it may if nothing of the stream waits, and what the peer has no window for is no more than `spare`, with
    /// all that was let in so; or nothing else was. If not, [`MayGoOn`](crate::Event::MayGoOn)
    /// tells when it may.
    pub fn may_go_beyond(&mut self, id: StreamId, len: usize, spare: usize) -> bool {
        let may = self.fits_beyond(id, len, spare);
        if !may && !self.held_up.iter().any(|&(other, _)| other == id) {
            self.held_up.push((id, len));
        }
        may
    }

    fn fits_beyond(&mut self, id: StreamId, len: usize, spare: usize) -> bool {
        // Nothing is kept for a stream that is gone.
        let Some(Stream { outgoing, .. }) = self.streams.get_mut(&id) else { return true };
        let room = outgoing.window.min(self.send_window).max(0) as usize;
        let rest = (PREFIX + len).saturating_sub(room);
        let fits = outgoing.left() == 0 && (rest == 0 || self.beyond == 0 || self.beyond + rest <= spare);
        outgoing.may_go_beyond = fits;
        fits
    }

    /// Whether streams wait that [`may_go_beyond`](Self::may_go_beyond) has refused.
    #[must_use]
    pub fn holds_up(&self) -> bool {
        !self.held_up.is_empty()
    }

    /// Tells of the streams that were held up and may go on; whether there are any. `spare` is as in
    /// [`may_go_beyond`](Self::may_go_beyond), and `None` if there is room for all.
    pub fn let_go(&mut self, spare: Option<usize>) -> bool {
        let mut held_up = std::mem::take(&mut self.held_up);
        let before = held_up.len();
        held_up.retain(|&(id, len)| {
            let stays = spare.is_some_and(|spare| !self.fits_beyond(id, len, spare));
            if !stays {
                self.notices.push_back(super::Notice::MayGoOn(id));
            }
            stays
        });
        self.held_up = held_up;
        self.held_up.len() < before
    }

    /// Asks the peer for a sign of life: [`Pong`](crate::Event::Pong) arrives with the same token.
    pub fn ping(&mut self, token: [u8; 8]) {
        put(self.output.buffer(), kind::PING, 0, 0, &token);
    }

    /// Encodes the values of metadata as headers carry them, and checks their size.
    pub(super) fn fit(&self, metadata: Option<&Metadata>) -> Result<Option<Metadata>, SendError> {
        let Some(metadata) = metadata.filter(|metadata| !metadata.is_empty()) else { return Ok(None) };
        let (mut fitted, mut size) = (Metadata::default(), 0);
        for (key, value) in metadata.pairs() {
            let value = grpc::encode_value(key, value).map_err(SendError::Unfit)?;
            size += key.len() + value.len() + OVERHEAD;
            fitted.push(key, &value);
        }
        let limit = self.peer.max_header_list_size as usize;
        if size > limit {
            return Err(SendError::TooMuchMetadata { len: size, limit });
        }
        Ok(Some(fitted))
    }

    /// Schedules a stream if it has bytes to send and a window for them.
    pub(super) fn schedule(scheduled: &mut VecDeque<StreamId>, id: StreamId, stream: &mut Stream) {
        let outgoing = &mut stream.outgoing;
        if !outgoing.is_scheduled && outgoing.left() > 0 && outgoing.window > 0 {
            outgoing.is_scheduled = true;
            scheduled.push_back(id);
        }
    }

    /// Makes frames of waiting bytes, one for each stream in turn, as far as the windows and the output have room.
    pub(super) fn pump(&mut self) {
        while self.send_window > 0 && self.output.len() < HIGH {
            let Some(id) = self.scheduled.pop_front() else { return };
            let limit = self.options.send_queue;
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let outgoing = &mut stream.outgoing;
            outgoing.is_scheduled = false;
            let room = outgoing.window.min(self.send_window).max(0) as usize;
            let len = outgoing.left().min(room).min(LONGEST);
            if len == 0 {
                continue;
            }
            let is_end = len == outgoing.left() && matches!(outgoing.end, Some(End::Plain));
            put(self.output.buffer(), kind::DATA, if is_end { flag::END_STREAM } else { 0 }, id, outgoing.take(len));
            outgoing.window -= len as i64;
            self.send_window -= len as i64;
            self.waiting -= len;
            if outgoing.end.is_some() {
                self.finished -= len;
            }
            // Frequent changes of windows are no attack as long as much is sent for them.
            self.patience.earn((len / BYTES_FOR_UPDATE) as u32);
            let beyond = len.min(outgoing.beyond);
            outgoing.beyond -= beyond;
            self.beyond -= beyond;
            if outgoing.wants_room && outgoing.left() <= limit / 2 && outgoing.end.is_none() {
                outgoing.wants_room = false;
                self.notices.push_back(super::Notice::Room(id));
            }
            if outgoing.left() > 0 {
                Self::schedule(&mut self.scheduled, id, stream);
                continue;
            }
            outgoing.tidy();
            self.patience.earn(1);
            match outgoing.end.take() {
                None => {}
                Some(End::Plain) => self.end_of_sending(id),
                Some(End::Trailers(trailers)) => {
                    self.waiting -= trailers.cost();
                    self.finished -= trailers.cost();
                    let Trailers { code, message, details, metadata } = &*trailers;
                    let outcome = Outcome { code: *code, message, details, metadata: None };
                    self.put_status(id, &outcome, metadata.as_ref());
                }
            }
        }
    }
}

/// Appends metadata whose values are encoded for headers.
pub(super) fn put_metadata(encoder: &mut Encoder, out: &mut Vec<u8>, metadata: Option<&Metadata>) {
    for (key, value) in metadata.map_or(&[][..], Metadata::pairs) {
        let is_secret = matches!(key.as_str(), "authorization" | "cookie" | "proxy-authorization");
        encoder.field(out, key, value, if is_secret { Keep::Never } else { Keep::No });
    }
}

/// Writes bytes, and returns how many it has written.
pub type Out<'a> = &'a mut dyn FnMut(&[u8]) -> usize;

/// Bytes that lie in several places, read from the front.
struct Pieces<'a> {
    first: &'a [u8],
    others: std::slice::Iter<'a, &'a [u8]>,
}

impl<'a> Pieces<'a> {
    fn new(first: &'a [u8], others: &'a [&'a [u8]]) -> Self {
        Self { first, others: others.iter() }
    }

    /// The next bytes that lie in one place, at most `most`. `None` at the end.
    fn next(&mut self, most: usize) -> Option<&'a [u8]> {
        while self.first.is_empty() {
            self.first = self.others.next()?;
        }
        let (now, later) = self.first.split_at(self.first.len().min(most));
        self.first = later;
        (!now.is_empty()).then_some(now)
    }
}

/// Appends the frames of the next `len` bytes.
fn put_data(out: &mut Vec<u8>, id: StreamId, bytes: &mut Pieces<'_>, len: usize, last: bool) {
    out.reserve(len + len.div_ceil(LONGEST) * HEAD);
    let mut left = len;
    while left > 0 {
        let mut room = left.min(LONGEST);
        left -= room;
        put_head(out, room, kind::DATA, if last && left == 0 { flag::END_STREAM } else { 0 }, id);
        while room > 0 {
            let piece = bytes.next(room).expect("there are so many bytes");
            out.extend_from_slice(piece);
            room -= piece.len();
        }
    }
}

fn decimal(code: u8, digits: &mut [u8; 2]) -> &[u8] {
    digits[1] += code % 10;
    if code < 10 {
        return &digits[1..];
    }
    digits[0] += code / 10;
    digits
}

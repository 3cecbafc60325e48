//! One connection of HTTP/2.

mod body;
mod headers;
pub(crate) mod input;
pub(crate) mod output;
mod partial;
mod parting;
mod receive;
mod request;
mod send;
mod stream;

pub use send::Out;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Read, Write};

use foldhash::fast::RandomState;

use crate::code::{Broken, Code};
use crate::event::{Ending, Event, StreamId};
use crate::fields::{Request, Response};
use crate::frame::{self, HIGHEST, PREFACE, kind};
use crate::hpack::{Decoder, Encoder, Fields};
use crate::options::Options;
use crate::patience::Patience;
use crate::settings::{self, DEFAULT_WINDOW, PeerSettings};

use input::Input;
use output::Output;
use partial::{Arriving, Block};
pub use parting::{farewell, refusal};
use stream::Stream;

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// So many bytes.
    Some(usize),
    /// Nothing has arrived.
    Nothing,
    /// The peer sends no more.
    End,
}

/// The state of one HTTP/2 connection that carries gRPC, for either role. It does no input or output itself and never
/// waits. The owner passes in the bytes that arrive ([`fill`](Self::fill)), asks for [events](Self::next_event), sends,
/// and writes the output ([`flush`](Self::flush)) whenever it likes.
///
/// Nothing is written before the owner flushes, so that replies to many requests go out together.
#[derive(Debug)]
pub struct Session {
    is_server: bool,
    options: Options,
    input: Input,
    output: Output,
    streams: HashMap<StreamId, Stream, RandomState>,
    /// Server: streams that the peer has reset and a handler may still work for.
    held: HashSet<StreamId, RandomState>,
    /// Streams whose last frames may still arrive, newest last: those that this side has reset, each with the bytes of
    /// DATA that may be under way, and those that both sides have ended.
    reset: VecDeque<(StreamId, usize)>,
    ended: VecDeque<StreamId>,
    /// The highest stream that was begun. Clients begin all streams.
    highest: StreamId,
    decoder: Decoder,
    encoder: Encoder,
    fields: Fields,
    /// The sizes of all lists of fields that have come.
    listed: u64,
    /// A header block that is not complete.
    block: Option<Block>,
    /// A DATA frame that is being handed out.
    arriving: Option<Arriving>,
    peer: PeerSettings,
    /// Whether the peer's preface, and its first settings, have come.
    is_greeted: bool,
    is_settled: bool,
    /// Bytes that the peer may send on the connection, and received bytes for which credit was not returned yet.
    receive_window: i64,
    receive_credit: usize,
    holds_credit: bool,
    /// Bytes that this side may send on the connection.
    send_window: i64,
    /// Streams with bytes to send and a window for them, in the order of their turns.
    scheduled: VecDeque<StreamId>,
    /// Bytes that wait on all streams together, and those of them on streams to which this side adds nothing more.
    waiting: usize,
    finished: usize,
    /// Those of them that were let in beyond what may be kept, and streams whose next message must wait, with its length.
    beyond: usize,
    held_up: Vec<(StreamId, usize)>,
    /// Bytes of incomplete messages on all streams together.
    assembling: usize,
    /// The most bytes that a compressed message may become.
    most_decompressed: usize,
    notices: VecDeque<Notice>,
    patience: Patience,
    /// The last stream that this side has promised to work on in a GOAWAY.
    draining: Option<StreamId>,
    /// The last stream that the peer has promised to work on in a GOAWAY.
    going_away: Option<StreamId>,
    wants_streams: bool,
    over: Option<Broken>,
}

/// An event with data of its own.
#[derive(Debug)]
enum Notice {
    Ended(StreamId, Ending),
    /// The only message of a complete body, and whether it arrived compressed.
    Last(StreamId, Vec<u8>, bool),
    Refused(StreamId, u8, std::borrow::Cow<'static, str>),
    Reset(StreamId, Code, bool),
    Room(StreamId),
    MayGoOn(StreamId),
    StreamsFree,
    GoAway(StreamId, Code, String),
    Pong([u8; 8]),
}

/// An event whose data lies in the session.
enum Ready {
    Notice(Notice),
    Request {
        stream: StreamId,
        ended: bool,
    },
    Response {
        stream: StreamId,
        status: u16,
    },
    /// The message is the last `len` bytes that were skipped.
    Here {
        stream: StreamId,
        len: usize,
        cost: usize,
        ended: bool,
    },
    Whole {
        stream: StreamId,
        message: Vec<u8>,
        cost: usize,
        compressed: bool,
        ended: bool,
    },
    Raw {
        stream: StreamId,
        len: usize,
        ended: bool,
    },
}

/// How many streams of each kind are remembered after they are gone.
const REMEMBERED: usize = 256;
/// Frames of at least so many bytes are no flood.
const BYTES_OF_USE: usize = 64;

impl Session {
    /// The server's side. Its settings are ready to be written.
    #[must_use]
    pub fn server(options: Options) -> Self {
        Self::new(true, options)
    }

    /// The client's side. Its preface and settings are ready to be written.
    #[must_use]
    pub fn client(options: Options) -> Self {
        Self::new(false, options)
    }

    fn new(is_server: bool, mut options: Options) -> Self {
        // Credit beyond a window must not exceed the largest window.
        options.stream_window = options.stream_window.clamp(DEFAULT_WINDOW, HIGHEST / 2);
        options.connection_window = options.connection_window.clamp(DEFAULT_WINDOW, HIGHEST);
        let mut this = Self {
            is_server,
            options,
            input: Input::default(),
            output: Output::default(),
            streams: HashMap::default(),
            held: HashSet::default(),
            reset: VecDeque::new(),
            ended: VecDeque::new(),
            highest: 0,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            fields: Fields::new(options.max_header_list),
            listed: 0,
            block: None,
            arriving: None,
            peer: PeerSettings::default(),
            is_greeted: !is_server,
            is_settled: false,
            receive_window: i64::from(options.connection_window),
            receive_credit: 0,
            holds_credit: false,
            send_window: i64::from(DEFAULT_WINDOW),
            scheduled: VecDeque::new(),
            waiting: 0,
            finished: 0,
            beyond: 0,
            held_up: Vec::new(),
            assembling: 0,
            most_decompressed: options.max_message,
            notices: VecDeque::new(),
            patience: Patience::new(options.useless_burst, options.useless_per_second),
            draining: None,
            going_away: None,
            wants_streams: false,
            over: None,
        };
        this.greet();
        this
    }

    /// Adds this side's preface to the output.
    fn greet(&mut self) {
        let list = u32::try_from(self.options.max_header_list).unwrap_or(u32::MAX);
        let mut entries =
            vec![(settings::INITIAL_WINDOW_SIZE, self.options.stream_window), (settings::MAX_HEADER_LIST_SIZE, list)];
        if self.is_server {
            entries.push((settings::MAX_CONCURRENT_STREAMS, self.options.max_concurrent_streams));
        } else {
            entries.push((settings::ENABLE_PUSH, 0));
        }
        let mut payload = Vec::new();
        for (name, value) in entries {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let out = self.output.buffer();
        if !self.is_server {
            out.extend_from_slice(PREFACE);
        }
        frame::put(out, kind::SETTINGS, 0, 0, &payload);
        let more = self.options.connection_window - DEFAULT_WINDOW;
        if more > 0 {
            frame::put(out, kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
    }

    /// Room to read into, never empty. [`arrived`](Self::arrived) tells how much was read.
    pub fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// Notes that `len` bytes were read into [`space`](Self::space).
    ///
    /// # Panics
    /// If there was no room for so many bytes.
    pub fn arrived(&mut self, len: usize) {
        self.input.arrived(len);
    }

    /// Adds bytes that were read elsewhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.feed(bytes);
    }

    /// Reads once, without waiting for more.
    ///
    /// # Errors
    /// The reader's error, except when nothing has arrived or a signal interrupts.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<Filled> {
        loop {
            return match from.read(self.input.space()) {
                Ok(0) => Ok(Filled::End),
                Ok(len) => {
                    self.input.arrived(len);
                    Ok(Filled::Some(len))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Filled::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// The next event in what has arrived; `None` if more has to be read first.
    ///
    /// # Errors
    /// The connection is over. A GOAWAY with the reason is in the output: flush it if possible, and close.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken> {
        match self.step() {
            Ok(None) => Ok(None),
            Ok(Some(ready)) => Ok(Some(self.event(ready))),
            Err(broken) => {
                if self.over.is_none() {
                    self.shut(broken.code, broken.why);
                    self.over = Some(broken);
                }
                Err(broken)
            }
        }
    }

    fn event(&self, ready: Ready) -> Event<'_> {
        match ready {
            Ready::Request { stream, ended } => Event::Request { stream, request: Request(&self.fields), ended },
            Ready::Response { stream, status } => Event::Response { stream, response: Response(&self.fields, status) },
            Ready::Here { stream, len, cost, ended } => {
                Event::Message { stream, message: self.input.skipped(len).into(), cost, compressed: false, ended }
            }
            Ready::Whole { stream, message, cost, compressed, ended } => {
                Event::Message { stream, message: message.into(), cost, compressed, ended }
            }
            Ready::Raw { stream, len, ended } => {
                Event::Data { stream, data: self.input.skipped(len), cost: len, ended }
            }
            Ready::Notice(notice) => match notice {
                Notice::Ended(stream, ending) => Event::Ended { stream, ending },
                Notice::Last(stream, message, compressed) => {
                    Event::Message { stream, message: message.into(), cost: 0, compressed, ended: true }
                }
                Notice::Refused(stream, code, why) => Event::Refused { stream, code, why },
                Notice::Reset(stream, code, unprocessed) => Event::Reset { stream, code, unprocessed },
                Notice::Room(stream) => Event::Room { stream },
                Notice::MayGoOn(stream) => Event::MayGoOn { stream },
                Notice::StreamsFree => Event::StreamsFree,
                Notice::GoAway(last, code, why) => Event::GoAway { last, code, why },
                Notice::Pong(token) => Event::Pong(token),
            },
        }
    }

    /// Whether [`next_event`](Self::next_event) has something to process, even if it may not make an event.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        self.input.len() > 0 || !self.notices.is_empty()
    }

    /// Whether the peer's settings have arrived. Before, its limits are not known.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The bytes to be written, in order.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.output.unsent()
    }

    /// Notes that `len` bytes of [`unsent`](Self::unsent) are written. There may be more of it afterwards.
    ///
    /// # Panics
    /// If there were not so many bytes.
    pub fn sent(&mut self, len: usize) {
        self.output.sent(len, self.waiting > 0);
        self.pump();
    }

    /// Writes as much as the writer accepts. Whether everything is out.
    ///
    /// # Errors
    /// The writer's error, except when it accepts nothing now or a signal interrupts.
    pub fn flush(&mut self, into: &mut impl Write) -> io::Result<bool> {
        while self.output.len() > 0 {
            match into.write(self.output.unsent()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => self.sent(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// How many bytes [`unsent`](Self::unsent) has.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.output.len()
    }

    /// Bytes of messages and statuses that wait behind the peer's windows, or for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Those of them on streams to which this side adds nothing more.
    #[must_use]
    pub fn finished(&self) -> usize {
        self.finished
    }

    /// Bytes of memory that data from the peer takes: bytes that were read and not processed, incomplete messages,
    /// header blocks and tables. Messages that were handed out belong to the owner.
    #[must_use]
    pub fn held(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes.capacity());
        self.input.held() + self.assembling + block + self.fields.held() + self.decoder.held() + self.encoder.held()
    }

    /// How large all lists of fields were together that have come, as RFC 9113 counts it.
    #[must_use]
    pub fn listed(&self) -> u64 {
        self.listed
    }

    /// Bytes of incomplete messages on all streams together.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.assembling
    }

    /// The stream with the longest incomplete message, and the bytes that are kept of it. Holding back credit does not
    /// free those bytes: an owner whose memory is full of them has to end a stream.
    #[must_use]
    pub fn longest_unfinished(&self) -> Option<(StreamId, usize)> {
        let unfinished = self.streams.iter().map(|(&id, stream)| (id, stream.incoming.reader.held()));
        unfinished.filter(|&(_, held)| held > 0).max_by_key(|&(_, held)| held)
    }

    /// Open streams, including those that the peer has reset and that were not [forgotten](Self::forget).
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len() + self.held.len()
    }

    /// Whether either side has announced the end of the connection, no stream is left and everything is written.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        (self.draining.is_some() || self.going_away.is_some()) && self.streams() == 0 && self.output.len() == 0
    }

    /// Remembers a stream that is gone, because its last frames may still arrive.
    fn remember<T>(list: &mut VecDeque<T>, stream: T) {
        if list.len() == REMEMBERED {
            list.pop_front();
        }
        list.push_back(stream);
    }

    /// Remembers a stream that this side resets. The peer gets no more credit for it.
    fn remember_reset(&mut self, id: StreamId) {
        if !self.is_reset(id) {
            let under_way = self.options.stream_window as usize;
            Self::remember(&mut self.reset, (id, under_way));
        }
    }

    /// Whether this side has reset the stream recently.
    fn is_reset(&self, id: StreamId) -> bool {
        self.reset.iter().any(|&(reset, _)| reset == id)
    }

    /// Whether DATA of `len` bytes may have been under way when this side reset the stream. Its window bounds that,
    /// however short the frames are. The window may have been wider for a long message; its frames are then long enough
    /// to be no flood.
    fn was_under_way(&mut self, id: StreamId, len: usize) -> bool {
        let Some((_, left)) = self.reset.iter_mut().rev().find(|(reset, _)| *reset == id) else { return false };
        match left.checked_sub(len) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => len >= BYTES_OF_USE,
        }
    }

    /// Removes a stream from all lists.
    fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        self.waiting -= stream.waiting();
        if stream.outgoing.end.is_some() {
            self.finished -= stream.waiting();
        }
        self.beyond -= stream.outgoing.beyond;
        self.assembling -= stream.incoming.reader.held();
        if stream.outgoing.is_scheduled {
            self.scheduled.retain(|&other| other != id);
        }
        if self.wants_streams && self.has_free_streams() {
            self.wants_streams = false;
            self.notices.push_back(Notice::StreamsFree);
        }
        Some(stream)
    }

    /// Ends a stream because the peer broke a rule on it.
    fn fail_stream(&mut self, id: StreamId, code: Code) -> Result<(), Broken> {
        self.patience.spend("the peer breaks rules on too many streams")?;
        if let Some(stream) = self.remove(id) {
            self.tell_reset(id, &stream, code);
        }
        self.refuse(id, code)
    }

    /// Tells the owner that a stream was reset, unless a server has ended its side already: then no handler works for
    /// the stream, and none would [forget](Self::forget) it.
    fn tell_reset(&mut self, id: StreamId, stream: &Stream, code: Code) {
        if self.is_server && stream.outgoing.is_closed() {
            return;
        }
        if self.is_server {
            self.held.insert(id);
        }
        let unprocessed = !self.is_server && code == Code::REFUSED_STREAM;
        self.notices.push_back(Notice::Reset(id, code, unprocessed));
    }

    /// Answers a stream with a reset.
    fn refuse(&mut self, id: StreamId, code: Code) -> Result<(), Broken> {
        self.remember_reset(id);
        self.output.reply(kind::RST_STREAM, 0, id, &code.0.to_be_bytes())
    }

    /// Removes a stream that both sides have ended.
    fn close_if_ended(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(|stream| stream.incoming.is_ended && stream.outgoing.is_ended) {
            self.remove(id);
            Self::remember(&mut self.ended, id);
            self.patience.earn(1);
        }
    }
}

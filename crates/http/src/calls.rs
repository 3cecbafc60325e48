//! Traits of a connection in any version of HTTP: at a server, and at a client.

use std::fmt::Debug;

use crate::code::{Broken, Code};
use crate::event::{Event, RequestHead, SendError, Sent, StreamId};
use crate::reading::Reads;
use crate::session::{Out, Session};

/// The bytes of a connection and how many of them are kept: what the owner of the socket needs. The methods are those
/// of [`Session`].
#[expect(missing_docs, reason = "they are described where they are")]
pub trait Connection: Debug + Send {
    fn space(&mut self) -> &mut [u8];
    fn arrived(&mut self, len: usize);
    fn has_arrived(&self) -> bool;
    fn unsent(&self) -> &[u8];
    fn sent(&mut self, len: usize);
    fn queued(&self) -> usize;
    fn waiting(&self) -> usize;
    fn held(&self) -> usize;
    fn unfinished(&self) -> usize;
    fn hold_credit(&mut self, hold: bool);

    /// Those of the waiting bytes behind which nothing follows. HTTP/1.1 has windows for nothing, so nothing waits for one.
    fn finished(&self) -> usize {
        0
    }

    /// How large all lists of fields were together that have come. In HTTP/2 few bytes may stand for a long list.
    fn listed(&self) -> u64 {
        0
    }

    /// Whether to read more now. HTTP/2 has windows for this.
    fn takes_more(&self) -> bool {
        true
    }

    /// Whether to shut down this side of the connection when everything is written.
    fn ends(&self) -> bool {
        false
    }

    /// Whether the peer may end the connection between two calls without notice, as servers of HTTP/1.1 do.
    fn may_end(&self) -> bool {
        false
    }

    /// Whether to cut the connection: HTTP/1.1 has no other way to cancel a request or response under way.
    fn is_cut(&self) -> bool {
        false
    }
}

/// Requests and responses at a client. The methods are those of [`Session`].
#[expect(missing_docs, reason = "they are described where they are")]
pub trait Requests: Connection {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken>;
    fn request(&mut self, head: &RequestHead<'_>, ends: bool) -> Result<StreamId, SendError>;
    fn end(&mut self, id: StreamId) -> Result<(), SendError>;
    fn read_as(&mut self, id: StreamId, reads: Reads);
    fn release(&mut self, id: StreamId, cost: usize);
    fn reset(&mut self, id: StreamId, code: Code);
    fn limit_decompression(&mut self, most: usize);

    /// Sends a part of the body of a request. If possible, `out` writes long parts directly, so that they need not be
    /// copied whole.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool, out: Out<'_>) -> Result<Sent, SendError>;

    /// This connection as one of HTTP/2, if it is one: gRPC and pings need that.
    fn http2(&mut self) -> Option<&mut Session>;
}

/// Requests and responses at a server. The methods are those of [`Session`].
#[expect(missing_docs, reason = "they are described where they are")]
pub trait Calls: Connection {
    const IS_HTTP2: bool;

    fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken>;
    fn read_as(&mut self, id: StreamId, reads: Reads);
    fn discard(&mut self, id: StreamId);
    fn release(&mut self, id: StreamId, cost: usize);
    fn forget(&mut self, id: StreamId);
    fn respond(&mut self, id: StreamId, status: u16, headers: &[(&str, &[u8])], ends: bool) -> Result<(), SendError>;
    fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool) -> Result<Sent, SendError>;
    fn longest_unfinished(&self) -> Option<(StreamId, usize)>;
    fn limit_decompression(&mut self, most: usize);
    fn drain(&mut self);
    fn drain_now(&mut self);

    /// HTTP/1.1 has no windows, and one stream.
    fn may_go_beyond(&mut self, _id: StreamId, _len: usize, _spare: usize) -> bool {
        true
    }

    /// Nothing is held up in HTTP/1.1.
    fn holds_up(&self) -> bool {
        false
    }

    /// The same.
    fn let_go(&mut self, _spare: Option<usize>) -> bool {
        false
    }

    /// This connection as one of HTTP/2, if it is one: gRPC needs that.
    fn http2(&mut self) -> Option<&mut Session>;

    /// Sends a whole response. Names must be in lower case, values printable.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    fn answer(&mut self, id: StreamId, status: u16, headers: &[(&str, &[u8])], body: &[u8]) -> Result<(), SendError> {
        let len = body.len().to_string();
        let mut headers = headers.to_vec();
        // A response with status 204 has no body, and must not name its length.
        if status != 204 {
            headers.push(("content-length", len.as_bytes()));
        }
        self.respond(id, status, &headers, body.is_empty())?;
        if !body.is_empty() {
            self.send_data(id, &[body], true)?;
        }
        Ok(())
    }
}

/// Passes methods on to those of the same name.
macro_rules! delegate {
    ($type:ty: $(fn $name:ident(&self $(, $arg:ident: $of:ty)*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self $(, $arg: $of)*) $(-> $result)? { <$type>::$name(self $(, $arg)*) })*
    };
    (mut $type:ty: $(fn $name:ident(&mut self $(, $arg:ident: $of:ty)*) $(-> $result:ty)?;)*) => {
        $(fn $name(&mut self $(, $arg: $of)*) $(-> $result)? { <$type>::$name(self $(, $arg)*) })*
    };
}

impl Connection for Session {
    delegate!(Session:
        fn has_arrived(&self) -> bool;
        fn unsent(&self) -> &[u8];
        fn queued(&self) -> usize;
        fn held(&self) -> usize;
        fn unfinished(&self) -> usize;
        fn listed(&self) -> u64;
        fn finished(&self) -> usize;
    );
    delegate!(mut Session:
        fn space(&mut self) -> &mut [u8];
        fn arrived(&mut self, len: usize);
        fn sent(&mut self, len: usize);
        fn hold_credit(&mut self, hold: bool);
    );

    fn waiting(&self) -> usize {
        Self::waiting(self)
    }
}

impl Calls for Session {
    const IS_HTTP2: bool = true;

    delegate!(Session:
        fn longest_unfinished(&self) -> Option<(StreamId, usize)>;
        fn holds_up(&self) -> bool;
    );
    delegate!(mut Session:
        fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken>;
        fn read_as(&mut self, id: StreamId, reads: Reads);
        fn discard(&mut self, id: StreamId);
        fn release(&mut self, id: StreamId, cost: usize);
        fn respond(&mut self, id: StreamId, status: u16, headers: &[(&str, &[u8])], ends: bool)
            -> Result<(), SendError>;
        fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool) -> Result<Sent, SendError>;
        fn limit_decompression(&mut self, most: usize);
        fn drain(&mut self);
        fn drain_now(&mut self);
        fn may_go_beyond(&mut self, id: StreamId, len: usize, spare: usize) -> bool;
        fn let_go(&mut self, spare: Option<usize>) -> bool;
    );

    fn forget(&mut self, id: StreamId) {
        Self::forget(self, id);
    }

    fn http2(&mut self) -> Option<&mut Session> {
        Some(self)
    }
}

impl Requests for Session {
    delegate!(mut Session:
        fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken>;
        fn request(&mut self, head: &RequestHead<'_>, ends: bool) -> Result<StreamId, SendError>;
        fn end(&mut self, id: StreamId) -> Result<(), SendError>;
        fn read_as(&mut self, id: StreamId, reads: Reads);
        fn release(&mut self, id: StreamId, cost: usize);
        fn reset(&mut self, id: StreamId, code: Code);
        fn limit_decompression(&mut self, most: usize);
    );

    fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool, out: Out<'_>) -> Result<Sent, SendError> {
        self.send_data_through(id, pieces, last, out)
    }

    fn http2(&mut self) -> Option<&mut Session> {
        Some(self)
    }
}

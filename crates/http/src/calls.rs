//! What a connection is, whatever version of HTTP it speaks: at a server, and at a client.

use std::fmt::Debug;

use crate::code::{Broken, Code};
use crate::event::{Event, RequestHead, SendError, Sent, StreamId};
use crate::reading::Reads;
use crate::session::{Out, Session};

/// Bytes that come and go, and how many are kept: what whoever has the socket knows of a connection. The methods are those of
/// [`Session`].
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

    /// Whether more should be read now. HTTP/2 has windows instead.
    fn takes_more(&self) -> bool {
        true
    }

    /// Whether this side of the connection is to be ended when all is written.
    fn ends(&self) -> bool {
        false
    }

    /// Whether the peer may end the connection between any two calls without a word, as servers of HTTP/1.1 do.
    fn may_end(&self) -> bool {
        false
    }

    /// Whether the connection is to be cut off: HTTP/1.1 has no other way to give up what is under way.
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

    /// A part of the body of a request. What is long is written by `out` on the way, where that is possible.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool, out: Out<'_>) -> Result<Sent, SendError>;

    /// The same connection, if it speaks HTTP/2: gRPC needs that, and pings do.
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

    /// The same connection, if it speaks HTTP/2: gRPC needs that.
    fn http2(&mut self) -> Option<&mut Session>;

    /// A whole response. Names must be in lower case, values printable.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    fn answer(&mut self, id: StreamId, status: u16, headers: &[(&str, &[u8])], body: &[u8]) -> Result<(), SendError> {
        let len = body.len().to_string();
        let mut headers = headers.to_vec();
        // A response of that status has no body, and says nothing of one.
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

    delegate!(Session: fn longest_unfinished(&self) -> Option<(StreamId, usize)>;);
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

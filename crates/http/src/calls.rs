//! What a server's connection is, whatever version of HTTP it speaks.

use std::fmt::Debug;

use crate::code::Broken;
use crate::event::{Event, SendError, Sent, StreamId};
use crate::h1::Http1;
use crate::reading::Reads;
use crate::session::Session;

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

macro_rules! delegate_connection {
    ($type:ty) => {
        delegate!($type:
            fn has_arrived(&self) -> bool;
            fn unsent(&self) -> &[u8];
            fn queued(&self) -> usize;
            fn held(&self) -> usize;
            fn unfinished(&self) -> usize;
        );
        delegate!(mut $type:
            fn space(&mut self) -> &mut [u8];
            fn arrived(&mut self, len: usize);
            fn sent(&mut self, len: usize);
            fn hold_credit(&mut self, hold: bool);
        );
    };
}

macro_rules! delegate_calls {
    ($type:ty) => {
        delegate!($type: fn longest_unfinished(&self) -> Option<(StreamId, usize)>;);
        delegate!(mut $type:
            fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken>;
            fn read_as(&mut self, id: StreamId, reads: Reads);
            fn discard(&mut self, id: StreamId);
            fn release(&mut self, id: StreamId, cost: usize);
            fn respond(&mut self, id: StreamId, status: u16, headers: &[(&str, &[u8])], ends: bool)
                -> Result<(), SendError>;
            fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool) -> Result<Sent, SendError>;
            fn limit_decompression(&mut self, most: usize);
            fn drain_now(&mut self);
        );
    };
}

impl Connection for Session {
    delegate_connection!(Session);

    fn waiting(&self) -> usize {
        Self::waiting(self)
    }
}

impl Calls for Session {
    const IS_HTTP2: bool = true;

    delegate_calls!(Session);

    fn forget(&mut self, id: StreamId) {
        Self::forget(self, id);
    }

    fn http2(&mut self) -> Option<&mut Session> {
        Some(self)
    }
}

impl Connection for Http1 {
    delegate_connection!(Http1);

    fn waiting(&self) -> usize {
        0
    }

    fn takes_more(&self) -> bool {
        Self::takes_more(self)
    }

    fn ends(&self) -> bool {
        self.is_finished()
    }
}

impl Calls for Http1 {
    const IS_HTTP2: bool = false;

    delegate_calls!(Http1);

    fn forget(&mut self, _id: StreamId) {}

    fn http2(&mut self) -> Option<&mut Session> {
        None
    }
}

//! HTTP/2, HTTP/1.1 and the framing of gRPC, gRPC-Web and Connect, without sockets: state machines over bytes.
//!
//! [`Session`] is one connection of HTTP/2, for servers and clients. [`Http1`] is the server's end of a connection of
//! HTTP/1.1, [`Http1Client`] the client's. Everything from the peer is checked, and [`Options`] limits the memory that
//! the peer can make this side use. Written from RFC 9113 (HTTP/2), RFC 7541 (HPACK) and gRPC's description of itself.
//! `docs/adr/0032-http2.md` says why this is not the `h2` crate.
//!
//! A call, with both ends in one program:
//!
//! ```
//! use nearcall_http::{Call, Compressing, Ending, Event, Options, Outcome, Session};
//!
//! let (mut client, mut server) = (Session::client(Options::default()), Session::server(Options::default()));
//! let call = Call { path: "/pkg.Greeter/Hello", authority: "localhost", ..Call::default() };
//! let id = client.begin(&call)?;
//! client.send_last_message(id, &[b"Ada"], Compressing::No)?;
//!
//! // Usually a socket lies between the two: `flush` on this side, `fill` on the other.
//! server.feed(client.unsent());
//! client.sent(client.queued());
//! let mut name = None;
//! while let Some(event) = server.next_event()? {
//!     match event {
//!         Event::Request { request, .. } => assert_eq!(request.path(), "/pkg.Greeter/Hello"),
//!         Event::Message { stream, message, cost, .. } => name = Some((stream, message.into_owned(), cost)),
//!         _ => {}
//!     }
//! }
//! let (stream, name, cost) = name.expect("a message has come");
//! server.release(stream, cost);
//! server.send_message(stream, &[b"Hello, ", &name], Compressing::No)?;
//! server.send_status(stream, &Outcome::default())?;
//!
//! client.feed(server.unsent());
//! let mut ok = false;
//! while let Some(event) = client.next_event()? {
//!     match event {
//!         Event::Message { message, .. } => assert_eq!(&*message, b"Hello, Ada"),
//!         Event::Ended { ending: Ending::Status { code, .. }, .. } => ok = code == 0,
//!         _ => {}
//!     }
//! }
//! assert!(ok);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calls;
mod code;
mod envelope;
mod event;
mod fields;
mod frame;
mod grpc;
mod h1;
pub mod hpack;
mod names;
mod options;
mod patience;
mod reading;
mod session;
mod settings;
mod web;

pub use calls::{Calls, Connection, Requests};
pub use code::{Broken, Code};
pub use event::{Call, Ending, Event, Head, Outcome, RequestHead, SendError, Sent, StreamId};
pub use fields::{Request, Response};
pub use grpc::{BadMetadata, BadTimeout, Compressing, Encoding, Encodings, code_of_http};
pub use h1::{Http1, Http1Client, refusal_of_http1};
pub use options::{LimitName, Options};
pub use reading::Reads;
pub use session::{Filled, Out, Session, farewell, refusal};
pub use web::{Answer, Asked, Asks, Caller, Codec, Opened, Origins, Protocol, Reply, Shape};

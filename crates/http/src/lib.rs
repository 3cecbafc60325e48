//! HTTP/2 and gRPC's framing, without sockets: a state machine over bytes for servers and clients.
//!
//! [`Session`] is one connection. Everything from the peer is checked; what it can make this side keep is limited by
//! [`Options`]. Written from RFC 9113 (HTTP/2), RFC 7541 (HPACK) and gRPC's description of itself; why it is not the `h2`
//! crate says `docs/adr/0032-http2.md`.
//!
//! A call, with both sides in one place of memory:
//!
//! ```
//! use nearcall_http::{Call, Ending, Event, Options, Outcome, Session};
//!
//! let (mut client, mut server) = (Session::client(Options::default()), Session::server(Options::default()));
//! let call = Call { path: "/pkg.Greeter/Hello", authority: "localhost", ..Call::default() };
//! let id = client.begin(&call)?;
//! client.send_last_message(id, &[b"Ada"], false)?;
//!
//! // A socket lies between them elsewhere: `flush` on this side, `fill` on the other one.
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
//! server.send_message(stream, &[b"Hello, ", &name], false)?;
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

mod code;
mod event;
mod fields;
mod frame;
mod grpc;
pub mod hpack;
mod options;
mod patience;
mod session;
mod settings;

pub use code::{Broken, Code};
pub use event::{Call, Ending, Event, Head, Outcome, SendError, Sent, StreamId};
pub use fields::{Request, Response};
pub use grpc::{BadMetadata, BadTimeout, Encoding, Encodings, code_of_http};
pub use options::Options;
pub use session::{Filled, Out, Session, refusal};

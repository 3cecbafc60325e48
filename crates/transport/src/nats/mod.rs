//! Connections by way of a NATS server.
//!
//! A [`Broker`](broker::Broker) is a connection of this process to a NATS server. Over it, a [`Pipe`](pipe::Pipe) carries the bytes of one connection
//! between two private subjects, and a pair of sockets of this process carries them on: so what is spoken is nearcall's own
//! protocol over a socket, with its limits, as everywhere. The sockets of a server's clients come to it as those that
//! another process hands over.
//!
//! Messages that the NATS server keeps are no connections, and have a folder of their own, [`durable`].
//!
//! The files have an order: `thread` (the one thread that does all this), `broker`, `pipe`, `taking`, `meeting`, `durable`.

mod broker;
pub(crate) mod durable;
mod meeting;
mod pipe;
mod taking;
mod thread;

pub(crate) use broker::Servers;
pub(crate) use meeting::{dial, listen};
pub use taking::Taking;

//! What a transport is: how its URLs are parsed, how each side comes to an opening, and what carries it if that is a socket.

pub(crate) mod acceptor;
pub(crate) mod answer;
pub(crate) mod clients;
pub(crate) mod opening;
pub(crate) mod place;
pub(crate) mod protocol;
pub(crate) mod sockets;

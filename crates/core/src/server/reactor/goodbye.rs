//! The frame that asks a client to go elsewhere.

use nearcall_transport::{Body, Outgoing};
use nearcall_wire::Kind;

use crate::server::inbound::Inbound;
use crate::server::inbound::request::Request;

/// The flags of a GOAWAY that is not the last.
pub(super) const GOODBYE: u8 = 0;

/// Asks the client for another connection. With [`Outgoing::LAST`], calls that are not answered were not begun.
pub(super) fn say_goodbye(client: &Inbound<Request>, flags: u8) {
    let connection = &client.connection;
    let goodbye = Outgoing { flags, ..Outgoing::new(Kind::GoAway, Body::Whole(&[])) };
    // If the client is gone, the next read from it finds that.
    connection.shared.contain(|| _ = connection.send(0, &goodbye));
}

//! Clients of this process that a server is to receive for.

use std::sync::{Arc, OnceLock, Weak};

use crate::client::Connection;
use crate::server::connection::ServerConnection;

/// A client for which a server is to receive.
#[derive(Debug)]
pub(in crate::server) struct Adopted {
    pub(in crate::server) client: Weak<Connection>,
    /// Set once the server receives on the connection.
    pub(in crate::server) connection: Arc<OnceLock<ReceivedFrom>>,
}

/// A connection that a server receives from.
#[derive(Debug)]
pub(in crate::server) struct ReceivedFrom {
    /// The poller's token for the connection.
    pub(in crate::server) token: u64,
    pub(in crate::server) connection: Weak<ServerConnection>,
}

impl ReceivedFrom {
    pub(in crate::server) fn new(connection: &Arc<ServerConnection>) -> Self {
        Self { token: connection.token(), connection: Arc::downgrade(connection) }
    }
}

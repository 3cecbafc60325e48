//! Clients of this process that a server is to receive for.

use std::sync::{Arc, OnceLock, Weak};

use nearcall_platform::lock::Mutex;

use crate::client::Connection;
use crate::server::connection::ServerConnection;

/// The clients that wait for the server.
#[derive(Debug, Default)]
pub(in crate::server) struct Adoptions {
    waiting: Mutex<Vec<Adopted>>,
}

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
    connection: Weak<ServerConnection>,
}

impl ReceivedFrom {
    pub(in crate::server) fn new(connection: &Arc<ServerConnection>) -> Self {
        Self { token: connection.token(), connection: Arc::downgrade(connection) }
    }

    /// The connection, if it is still there.
    pub(in crate::server) fn connection(&self) -> Option<Arc<ServerConnection>> {
        self.connection.upgrade()
    }
}

impl Adoptions {
    pub(in crate::server) fn push(&self, adopted: Adopted) {
        self.waiting.lock().push(adopted);
    }

    /// Calls `adopt` for each waiting client. A client for which it returns `false` waits on, and is tried again next
    /// time.
    pub(in crate::server) fn take(&self, mut adopt: impl FnMut(&Adopted) -> bool) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let left: Vec<_> = waiting.into_iter().filter(|adopted| !adopt(adopted)).collect();
        if !left.is_empty() {
            self.waiting.lock().extend(left);
        }
    }
}

impl Adopted {
    /// The client's connection, if it is still there.
    pub(in crate::server) fn client(&self) -> Option<Arc<Connection>> {
        self.client.upgrade()
    }

    /// The server receives on the connection from now on.
    pub(in crate::server) fn settle(&self, connection: &Arc<ServerConnection>) {
        // It is settled once.
        let _ = self.connection.set(ReceivedFrom::new(connection));
        // No thread was there to send the frames that were queued before.
        connection.note_queued_frame();
    }
}

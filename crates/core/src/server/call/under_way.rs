//! Keeps a call under way beyond its handler, while callbacks of the handler have yet to run.

use std::sync::{Arc, Weak};

use nearcall_platform::lock::Mutex;
use nearcall_transport::Charge;

use crate::server::connection::ServerConnection;
use crate::server::connection::values::ValuesCharge;

/// Each callback of a call holds this until it has run. Until then the call counts as under way, for its server and for
/// its client, and its arguments stay charged. Otherwise a client could make callbacks pile up without limit.
#[derive(Debug)]
pub struct UnderWay {
    connection: Arc<ServerConnection>,
    left: Mutex<AfterHandler>,
}

/// What the request has left when its handler had returned.
#[derive(Debug, Default)]
struct AfterHandler {
    /// The request counts the call no longer.
    alone: bool,
    charges: (Option<Charge>, ValuesCharge),
}

/// The [`UnderWay`] of one call, while some callback holds it.
#[derive(Debug, Default)]
pub(in crate::server) struct Held(Mutex<Weak<UnderWay>>);

impl Held {
    /// Returns the call's `UnderWay`, made by the first callback.
    pub(super) fn hold(&self, connection: &Arc<ServerConnection>) -> Arc<UnderWay> {
        let mut held = self.0.lock();
        held.upgrade().unwrap_or_else(|| {
            let under_way = Arc::new(UnderWay { connection: Arc::clone(connection), left: Mutex::default() });
            *held = Arc::downgrade(&under_way);
            under_way
        })
    }

    pub(super) fn get(&self) -> Option<Arc<UnderWay>> {
        self.0.lock().upgrade()
    }
}

impl UnderWay {
    /// The handler has returned: the call is over when the last callback has run.
    pub(in crate::server) fn count_alone(&self) {
        self.left.lock().alone = true;
    }

    /// Keeps the arguments charged although the request is dropped.
    pub(in crate::server) fn keep(&self, arguments: Option<Charge>, values: ValuesCharge) {
        self.left.lock().charges = (arguments, values);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.left.lock().alone {
            self.connection.one_finished();
        }
    }
}

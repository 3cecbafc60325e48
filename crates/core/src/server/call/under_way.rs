//! A call that counts among those under way although its handler is through.

use crate::sync::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nearcall_platform::lock::Mutex;
use nearcall_transport::Charge;

use crate::server::connection::ServerConnection;
use crate::server::values::ValuesCharge;

/// Whoever still has something to do for a call holds this: the call counts among its server's and its client's until then,
/// and its arguments cost what they did. Otherwise what waits to be done would be what a client likes to make of it.
#[derive(Debug)]
pub struct UnderWay {
    connection: Arc<ServerConnection>,
    /// The handler is through: the call counts by this alone.
    alone: AtomicBool,
    charges: Mutex<(Option<Charge>, ValuesCharge)>,
}

/// That of one call, as long as somebody holds it.
#[derive(Debug, Default)]
pub(in crate::server) struct Held(Mutex<Weak<UnderWay>>);

impl Held {
    /// To be held by one more.
    pub(super) fn hold(&self, connection: &Arc<ServerConnection>) -> Arc<UnderWay> {
        let mut held = self.0.lock();
        held.upgrade().unwrap_or_else(|| {
            let (connection, alone) = (Arc::clone(connection), AtomicBool::new(false));
            let under_way = Arc::new(UnderWay { connection, alone, charges: Mutex::default() });
            *held = Arc::downgrade(&under_way);
            under_way
        })
    }

    pub(super) fn get(&self) -> Option<Arc<UnderWay>> {
        self.0.lock().upgrade()
    }
}

impl UnderWay {
    /// The handler is through. The call is over when nobody holds this any more.
    pub(in crate::server) fn count_alone(&self) {
        // Relaxed: whoever lets go of it last finds what was done before by others that held it.
        self.alone.store(true, Ordering::Relaxed);
    }

    /// Nobody reads the arguments any more.
    pub(in crate::server) fn keep(&self, arguments: Option<Charge>, values: ValuesCharge) {
        *self.charges.lock() = (arguments, values);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Relaxed: see `count_alone`.
        if self.alone.load(Ordering::Relaxed) {
            self.connection.one_finished();
        }
    }
}

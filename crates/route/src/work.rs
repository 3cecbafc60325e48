//! What a node has threads for. It starts none by itself, and makes no connections.

use std::sync::Arc;

use nearcall_core::Failure;
use nearcall_core::client::Channel;

use crate::endpoint::Endpoint;
use crate::left::Left;
use crate::rmr::Exchange;

/// Makes the channel to an endpoint of that name, which is a node.
pub type Dialler = Box<dyn Fn(&str) -> Result<Arc<Channel>, Failure> + Send + Sync>;

/// Starts a thread that does some work.
pub type Starter = Arc<dyn Fn(Work) -> Result<(), Failure> + Send + Sync>;

/// What a thread of its own has to do.
#[derive(Debug, Clone)]
pub enum Work {
    /// To connect an endpoint, and to send what waits for it; then what it has done is noted among those that have left.
    Endpoint(Arc<Endpoint>, Arc<Left>),
    /// To serve the sockets over which programs of RMR are spoken with.
    Exchange(Arc<Exchange>),
}

impl Work {
    /// A name for the thread.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Endpoint(endpoint, _) => endpoint.name(),
            Self::Exchange(_) => "rmr",
        }
    }

    /// Does it, until the node is closed.
    pub fn run(&self) {
        match self {
            Self::Endpoint(endpoint, left) => {
                endpoint.work();
                left.note_over(endpoint);
            }
            Self::Exchange(exchange) => exchange.work(),
        }
    }
}

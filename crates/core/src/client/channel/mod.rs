//! A client's connections to the servers at a URL: to one server at a time, or to all of them.

pub(in crate::client) mod balancer;
pub(in crate::client) mod patience;
pub(in crate::client) mod picker;
pub(in crate::client) mod subchannel;

use std::sync::Arc;
use std::time::Instant;

use nearcall_transport::{Options, Url};
use nearcall_wire::Failure;

use super::connection::Connection;
use crate::client::receiving::received::Adopter;
use balancer::Balancer;
use patience::{OnChange, Patience};
use picker::Picker;
use subchannel::Subchannel;

/// Makes connections to the servers at a URL, and new ones when they are lost.
pub struct Channel {
    url: Url,
    options: Options,
    servers: Servers,
}

#[expect(clippy::large_enum_variant, reason = "there is one for each channel, and every call looks at it")]
enum Servers {
    One(Subchannel),
    All(Arc<Balancer>),
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Channel {
    /// A channel that has not connected yet. Without a picker it calls the first server that can be reached, until its
    /// connection is lost; with one it connects to all.
    #[must_use]
    pub fn new(url: Url, options: Options, picker: Option<Box<dyn Picker>>, on_change: OnChange) -> Self {
        let servers = match picker {
            None => {
                let agree = move |old: Option<&str>, new: &str| match old {
                    Some(old) if old != new => on_change(new),
                    _ => Ok(()),
                };
                Servers::One(Subchannel::new(url.clone(), options.clone(), Box::new(agree)))
            }
            Some(picker) => Servers::All(Balancer::new(url.clone(), options.clone(), picker, on_change)),
        };
        Self { url, options, servers }
    }

    /// Where the servers are.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// How it connects.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether calls go to several connections.
    #[inline]
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        matches!(self.servers, Servers::All(_))
    }

    /// The last connection, usable or not; one of them if there are several; `None` if there was none yet.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Connection>> {
        match &self.servers {
            Servers::One(one) => one.current(),
            Servers::All(all) => all.current(),
        }
    }

    /// All connections that are usable now.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        match &self.servers {
            Servers::One(one) => one.ready().into_iter().collect(),
            Servers::All(all) => all.connections(),
        }
    }

    /// A connection for the next call, if one is usable; none of `asked` as long as there is another one.
    #[inline]
    #[must_use]
    pub fn ready(&self, asked: &[Arc<Connection>]) -> Option<Arc<Connection>> {
        match &self.servers {
            Servers::One(one) => one.ready(),
            Servers::All(all) => all.ready(asked),
        }
    }

    /// A usable connection, dialled now if there is none. Blocks as long as `patience` says, and until a dial that is
    /// under way has ended, but no longer than `until`: then the result is `None`, unless the last dial has failed.
    /// While it blocks, it asks `go_on` whether to go on, every 50 ms and after a signal.
    ///
    /// # Errors
    /// The failure that a call ends with.
    pub fn usable(
        &self,
        patience: Patience,
        until: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Arc<Connection>>, Failure> {
        match &self.servers {
            Servers::One(one) => one.usable(patience, until, go_on),
            Servers::All(all) => all.usable(patience, until, go_on),
        }
    }

    /// The failure that [`Channel::usable`] would return at once, because the only server was not reached and the pause
    /// after that is not over. Never waits.
    #[must_use]
    pub fn pausing(&self, patience: Patience) -> Option<Failure> {
        match &self.servers {
            Servers::One(one) => one.pausing(patience),
            Servers::All(_) => None,
        }
    }

    /// From now on the server may call objects that were given to it: `adopter` receives for the connections of this channel
    /// and for all later ones. Never waits.
    pub fn serve_with(&self, adopter: Arc<dyn Adopter>) {
        match &self.servers {
            Servers::One(one) => one.serve_with(adopter),
            Servers::All(all) => all.serve_with(adopter),
        }
    }

    /// Ends all connections and dials for good; calls under way fail with `CANCELLED`, or with `failure`. Returns whether
    /// everything accepted was sent.
    pub fn close(&self, failure: Option<&Failure>) -> bool {
        match &self.servers {
            Servers::One(one) => one.close(failure),
            Servers::All(all) => all.close(failure),
        }
    }

    /// Whether [`Channel::close`] was called. Never waits.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.servers {
            Servers::One(one) => one.is_closed(),
            Servers::All(all) => all.is_closed(),
        }
    }
}

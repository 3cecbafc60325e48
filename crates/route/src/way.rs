//! The way to a receiver: a channel to a node, or a link to a program of RMR.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwapOption;
use nearcall_core::client::{Channel, Connection, Passed, Patience};
use nearcall_core::{Body, Failure, Kind, Outgoing};

use crate::described::deliver_in;
use crate::letter::Form;
use crate::rmr::frame::LONGEST;
use crate::rmr::{Link, Outlet};

/// The way to a receiver.
#[derive(Debug)]
pub enum Way {
    /// To a node, or to what turns out to be none.
    Channel(ToNode),
    /// To a program of RMR.
    Rmr(Arc<Link>),
}

/// The way to a node.
#[derive(Debug)]
pub struct ToNode {
    channel: Arc<Channel>,
    /// The connection whose server was looked at last, with the number of its method if it is a node.
    checked: ArcSwapOption<(Arc<Connection>, Option<u16>)>,
}

impl From<Arc<Channel>> for Way {
    fn from(channel: Arc<Channel>) -> Self {
        Self::Channel(ToNode { channel, checked: ArcSwapOption::empty() })
    }
}

impl From<Arc<Link>> for Way {
    fn from(link: Arc<Link>) -> Self {
        Self::Rmr(link)
    }
}

/// How a way stands.
pub(crate) enum Standing {
    /// Messages can be sent.
    Ready(Ready),
    /// There is a connection, but to no node.
    Stranger,
    /// There is no connection.
    Down,
}

/// A connection over which messages can be sent.
pub(crate) enum Ready {
    Call(Arc<Connection>, u16),
    Rmr(Arc<Outlet>),
}

impl Way {
    pub(crate) fn form(&self) -> Form {
        match self {
            Self::Channel(_) => Form::Call,
            Self::Rmr(_) => Form::Rmr,
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        match self {
            Self::Channel(to_node) => {
                let Some(connection) = to_node.channel.ready() else { return Standing::Down };
                match to_node.number(&connection) {
                    Some(number) => Standing::Ready(Ready::Call(connection, number)),
                    None => Standing::Stranger,
                }
            }
            Self::Rmr(link) => link.current().map_or(Standing::Down, |outlet| Standing::Ready(Ready::Rmr(outlet))),
        }
    }

    /// Connects, for a moment.
    ///
    /// # Errors
    /// Why it could not.
    pub(crate) fn connect(&self, until: Instant, go_on: &mut dyn FnMut() -> bool) -> Result<(), Failure> {
        match self {
            Self::Channel(to_node) => to_node.channel.usable(Patience::FailFast, Some(until), go_on).map(drop),
            Self::Rmr(link) => link.connect().map(drop).map_err(|error| unavailable(&error)),
        }
    }

    pub(crate) fn close(&self) {
        match self {
            Self::Channel(to_node) => _ = to_node.channel.close(None),
            Self::Rmr(link) => link.close(),
        }
    }
}

impl ToNode {
    /// The number of the method that takes messages at the other end of a connection. `None` if that is no node.
    fn number(&self, connection: &Arc<Connection>) -> Option<u16> {
        if let Some(checked) = &*self.checked.load()
            && Arc::ptr_eq(&checked.0, connection)
        {
            return checked.1;
        }
        let number = deliver_in(connection.description());
        self.checked.store(Some(Arc::new((Arc::clone(connection), number))));
        number
    }
}

impl Ready {
    /// Sends a message, in two pieces. With `go_on` it waits for room, and asks before each short wait whether to.
    ///
    /// # Errors
    /// It cannot be sent. Whether another can is said by [`is_usable`](Self::is_usable).
    pub(crate) fn send(&self, pieces: &[&[u8]; 2], go_on: Option<&mut dyn FnMut() -> bool>) -> Result<Passed, Failure> {
        match self {
            Self::Call(connection, number) => connection.send_oneway(&frame(*number, body_of(pieces)), go_on),
            Self::Rmr(_) if pieces[0].len() + pieces[1].len() > LONGEST => {
                let text = "a message of RMR has fewer than 2 GiB".to_owned();
                Err(Failure::new(Failure::INVALID_ARGUMENT, text))
            }
            Self::Rmr(outlet) => outlet.send(pieces, go_on).map_err(|error| unavailable(&error)),
        }
    }

    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Self::Call(connection, _) => connection.is_usable(),
            Self::Rmr(outlet) => !outlet.is_lost(),
        }
    }
}

fn unavailable(error: &std::io::Error) -> Failure {
    Failure::new(Failure::UNAVAILABLE, error.to_string())
}

fn body_of<'a>(pieces: &'a [&'a [u8]; 2]) -> Body<'a> {
    if pieces[1].is_empty() { Body::Whole(pieces[0]) } else { Body::Pieces(pieces) }
}

fn frame(number: u16, body: Body<'_>) -> Outgoing<'_> {
    Outgoing { method: number, flags: Outgoing::ONEWAY, ..Outgoing::new(Kind::Call, body) }
}

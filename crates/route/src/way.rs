//! The way to a receiver: a channel to a node, a link to a program of RMR, or a NATS server that keeps messages. Messages are given to it as the calls that they
//! are between nodes.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use nearcall_core::client::{Channel, Connection, Passed, Patience};
use nearcall_core::{Body, Failure, Kind, Outgoing};
use nearcall_transport::{DurableSender, Unsent};
use smallvec::SmallVec;

use crate::calls::Place;
use crate::described::deliver_in;
use crate::message::{Envelope, take_apart};
use crate::rmr::frame::{Fields, LONGEST, Sender};
use crate::rmr::{Link, Outlet};

/// The way to a receiver.
#[derive(Debug)]
pub(crate) enum Way {
    /// To a node, or to what turns out to be none.
    Channel {
        channel: Arc<Channel>,
        /// The connection whose server was looked at last, with the number of its method if it is a node.
        checked: ArcSwapOption<(Arc<Connection>, Option<u16>)>,
    },
    /// To a program of RMR.
    Rmr {
        link: Arc<Link>,
        /// What the program is told of this node.
        sender: Arc<ArcSwap<Sender>>,
    },
    /// To a NATS server that keeps messages.
    Durable(Arc<DurableSender>),
}

impl From<Arc<Channel>> for Way {
    fn from(channel: Arc<Channel>) -> Self {
        Self::Channel { channel, checked: ArcSwapOption::empty() }
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
    /// With the number of the method that takes them.
    Channel(Arc<Connection>, u16),
    Rmr(Arc<Outlet>, Arc<Sender>),
    Durable(Arc<DurableSender>),
}

impl Standing {
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }

    /// The connection to a node, whose end can be waited for.
    pub(crate) fn connection(&self) -> Option<&Arc<Connection>> {
        match self {
            Self::Ready(Ready::Channel(connection, _)) => Some(connection),
            _ => None,
        }
    }
}

impl Way {
    #[inline]
    pub(crate) fn standing(&self) -> Standing {
        match self {
            Self::Channel { channel, checked } => {
                let Some(connection) = channel.ready(&[]) else { return Standing::Down };
                match number(checked, &connection) {
                    Some(number) => Standing::Ready(Ready::Channel(connection, number)),
                    None => Standing::Stranger,
                }
            }
            Self::Rmr { link, sender } => match link.current() {
                Some(outlet) => Standing::Ready(Ready::Rmr(outlet, sender.load_full())),
                None => Standing::Down,
            },
            Self::Durable(durable) if durable.is_connected() => Standing::Ready(Ready::Durable(Arc::clone(durable))),
            Self::Durable(_) => Standing::Down,
        }
    }

    /// Connects, for a moment.
    ///
    /// # Errors
    /// Why it could not.
    pub(crate) fn connect(&self, until: Instant, go_on: &mut dyn FnMut() -> bool) -> Result<(), Failure> {
        match self {
            Self::Channel { channel, .. } => channel.usable(Patience::FailFast, Some(until), go_on).map(drop),
            Self::Rmr { link, .. } => link.connect().map(drop).map_err(|error| unavailable(&error)),
            Self::Durable(durable) => durable.connect(until, go_on).map_err(|error| unavailable(&*error)),
        }
    }

    /// Messages that it has taken and that may still be lost, and their bytes.
    pub(crate) fn unacknowledged(&self) -> (usize, usize) {
        if let Self::Durable(durable) = self { durable.unacknowledged() } else { (0, 0) }
    }

    /// Sends nothing more. What may be lost is waited for until then. How many messages are.
    pub(crate) fn close(&self, until: Option<Instant>) -> usize {
        match self {
            Self::Channel { channel, .. } => _ = channel.close(None),
            Self::Rmr { link, .. } => link.close(),
            Self::Durable(durable) => return durable.close(until.unwrap_or_else(Instant::now)),
        }
        0
    }
}

/// The number of the method that takes messages at the other end of a connection. `None` if that is no node.
#[inline]
fn number(checked: &ArcSwapOption<(Arc<Connection>, Option<u16>)>, connection: &Arc<Connection>) -> Option<u16> {
    if let Some(checked) = &*checked.load()
        && Arc::ptr_eq(&checked.0, connection)
    {
        return checked.1;
    }
    let number = deliver_in(connection.description());
    checked.store(Some(Arc::new((Arc::clone(connection), number))));
    number
}

impl Ready {
    /// Sends a message, in two pieces. With `go_on` it waits for room, and asks before each short wait whether to.
    ///
    /// # Errors
    /// It cannot be sent. Whether another can is said by [`is_usable`](Self::is_usable).
    #[inline]
    pub(crate) fn send(&self, pieces: &[&[u8]; 2], go_on: Option<&mut dyn FnMut() -> bool>) -> Result<Passed, Failure> {
        match self {
            Self::Channel(connection, number) => {
                let body = if pieces[1].is_empty() { Body::Whole(pieces[0]) } else { Body::Pieces(pieces) };
                let call = Outgoing { method: *number, flags: Outgoing::ONEWAY, ..Outgoing::new(Kind::Call, body) };
                connection.send_oneway(&call, go_on)
            }
            Self::Rmr(outlet, sender) => send_as_rmr(outlet, sender, pieces, go_on),
            Self::Durable(durable) => {
                durable.send(pieces, go_on).map(|()| Passed::Sent).or_else(|unsent| match unsent {
                    Unsent::NoRoom => Ok(Passed::NoRoom),
                    Unsent::Down => Err(unavailable(&"there is no connection to the NATS server")),
                    Unsent::TooLong(longest) => {
                        let text =
                            format!("the NATS server keeps messages of at most {longest} bytes (its max_payload)");
                        Err(Failure::new(Failure::INVALID_ARGUMENT, text))
                    }
                })
            }
        }
    }

    /// The message of a call was sent.
    pub(crate) fn note_sent(&self, call: &Place) {
        match self {
            Self::Channel(connection, _) => call.was_sent_over(connection),
            Self::Rmr(..) | Self::Durable(_) => call.was_sent_unwatched(),
        }
    }

    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Self::Channel(connection, _) => connection.is_usable(),
            Self::Rmr(outlet, _) => !outlet.is_lost(),
            Self::Durable(durable) => durable.is_connected(),
        }
    }
}

fn send_as_rmr(
    outlet: &Outlet,
    sender: &Sender,
    pieces: &[&[u8]; 2],
    go_on: Option<&mut dyn FnMut() -> bool>,
) -> Result<Passed, Failure> {
    let (Envelope { kind, subscription, transaction, entity, trace, call }, payload) = take_apart(pieces);
    let (source, source_address) = (sender.source.as_bytes(), sender.source_address.as_bytes());
    let entity = entity.as_bytes();
    let fields = Fields { kind, subscription, transaction, entity, trace, call, source, source_address };
    if fields.len() + payload.len() > LONGEST {
        return Err(Failure::new(Failure::INVALID_ARGUMENT, "a message of RMR has fewer than 2 GiB".to_owned()));
    }
    let mut head = SmallVec::<[u8; 512]>::new();
    fields.write(payload.len(), &mut |bytes| head.extend_from_slice(bytes));
    outlet.send(&[&head, payload], go_on).map_err(|error| unavailable(&error))
}

fn unavailable(error: &dyn Display) -> Failure {
    Failure::new(Failure::UNAVAILABLE, error.to_string())
}

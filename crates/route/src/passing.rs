//! How one message gets to one member of a group.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::Failure;

use crate::calls::Place;
use crate::endpoint::{Endpoint, Offered, Outbound, WhenFull};
use crate::message::TooLong;

/// Where a message could not go, or why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No table is in force.
    #[error("no table is in force, so nobody is known who takes messages of type {kind}")]
    NoTable {
        /// The message's type.
        kind: i32,
    },
    /// The table has no entry for the message.
    #[error("{} has no entry for type {kind} and subscription {subscription}", named(table))]
    NoEndpoint {
        /// The message's type.
        kind: i32,
        /// Its subscription.
        subscription: i32,
        /// The table's id.
        table: String,
    },
    /// The table's entry leads nowhere from this node.
    #[error(
        "{} sends type {kind} nowhere from here: its entry names this node only, which is reached by send(..., to=url), or \
         takes the type away from this sender",
        named(table)
    )]
    Nowhere {
        /// The message's type.
        kind: i32,
        /// The table's id.
        table: String,
    },
    /// The table names no owner of the message's managed entity.
    #[error("{} sends type {kind} to the owner of the managed entity, and names none for {entity:?}", named(table))]
    NoOwner {
        /// The message's type.
        kind: i32,
        /// Its managed entity.
        entity: String,
        /// The table's id.
        table: String,
    },
    /// The queue of an endpoint has no room.
    #[error("the queue for {endpoint} is full, because {why}")]
    Full {
        /// The endpoint's name.
        endpoint: String,
        /// Why that is so.
        why: String,
    },
    /// A message cannot go, or be replied, to such an address.
    #[error("{0}")]
    BadAddress(String),
    /// Too many replies go to receivers that cannot be reached.
    #[error("too many replies wait for receivers that cannot be reached, so this one is not sent")]
    Crowded,
    /// The message does not say where replies go.
    #[error("the sender of this message takes no replies: it gave no address")]
    NoAddress,
    /// A part of the message is too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
    /// An endpoint cannot be used, or does not take the message.
    #[error("{}", .0.message)]
    Failed(Failure),
}

/// A table as errors name it.
fn named(table: &str) -> String {
    if table.is_empty() { "the table".to_owned() } else { format!("table {table:?}") }
}

/// What is passed on.
#[derive(Clone, Copy)]
pub(crate) struct Letter<'a> {
    /// Its bytes, in two pieces.
    pub(crate) pieces: &'a [&'a [u8]; 2],
    /// The call that waits for the reply to it.
    pub(crate) call: Option<&'a Arc<Place>>,
}

/// Passes a message to one of the members of a group: from `first` on, to the next that is connected and has room. If there
/// is none, to the first that is connected, or the first, as the policy says.
#[inline]
pub(crate) fn pass(
    group: &[&Arc<Endpoint>],
    first: usize,
    letter: Letter<'_>,
    until: Option<Instant>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), SendError> {
    loop {
        let (endpoint, is_full, message) = match ask(group, first, letter)? {
            Asked::Taken => return Ok(()),
            Asked::Nobody { endpoint, is_full, message } => (endpoint, is_full, message),
        };
        let waits = endpoint.when_full() == WhenFull::Block;
        let mut may_wait = || until.is_none_or(|until| until > Instant::now()) && go_on();
        let offered = if is_full && waits {
            // The transport has no room, or a queue is before it.
            endpoint.offer(message, Some(&mut may_wait)).map_err(SendError::Failed)?
        } else {
            endpoint.insist(message)
        };
        if offered == Offered::Taken {
            return Ok(());
        }
        if !waits || !may_wait() || !endpoint.await_room(message.len(), until) {
            return Err(full(endpoint));
        }
    }
}

/// What the members of a group have said to a message.
enum Asked<'a> {
    /// One has it.
    Taken,
    /// This one must take it, or nobody does.
    Nobody {
        /// The member.
        endpoint: &'a Arc<Endpoint>,
        /// Whether it is connected and has no room.
        is_full: bool,
        /// The message.
        message: Outbound<'a>,
    },
}

/// Asks all members of a group in turn whether they take a message.
#[inline]
fn ask<'a>(group: &'a [&'a Arc<Endpoint>], first: usize, letter: Letter<'a>) -> Result<Asked<'a>, SendError> {
    let Letter { pieces, call } = letter;
    let message = Outbound { pieces, group: if group.len() > 1 { group } else { &[] }, call };
    let mut full = None;
    for at in first..first + group.len() {
        let endpoint = group[if at < group.len() { at } else { at - group.len() }];
        match endpoint.offer(message, None).map_err(SendError::Failed)? {
            Offered::Taken => return Ok(Asked::Taken),
            Offered::Full => full = full.or(Some(endpoint)),
            Offered::Down => {}
        }
    }
    Ok(Asked::Nobody { endpoint: full.unwrap_or(group[first]), is_full: full.is_some(), message })
}

/// The error for a message that an endpoint has no room for, which is counted.
#[cold]
pub(crate) fn full(endpoint: &Endpoint) -> SendError {
    endpoint.count_refused();
    let why = match endpoint.failure() {
        _ if endpoint.is_connected() => "it takes messages more slowly than they are sent".to_owned(),
        Some(failure) => format!("nobody takes them: {}", failure.message),
        None => "there is no connection to it yet".to_owned(),
    };
    SendError::Full { endpoint: endpoint.name().to_owned(), why }
}

/// Passes a message to a member of a group without waiting. `false` if there is no room, and senders wait for it.
///
/// # Errors
/// There is no room, and senders are told so; or it can never be sent.
pub(crate) fn attempt(group: &[&Arc<Endpoint>], first: usize, letter: Letter<'_>) -> Result<bool, SendError> {
    let Asked::Nobody { endpoint, message, .. } = ask(group, first, letter)? else { return Ok(true) };
    match endpoint.insist(message) {
        Offered::Taken => Ok(true),
        Offered::Full if endpoint.when_full() == WhenFull::Block => Ok(false),
        _ => Err(full(endpoint)),
    }
}

//! Where a NATS server keeps messages: how they get there, and from there to a node.

use std::sync::Arc;

use nearcall_core::Failure;
use nearcall_transport::{ConnectError, Durable, DurableSender, Options, Taking, durable, take_durable};

use crate::inbox::Inbox;
use crate::way::Way;
use crate::work::Dialler;

/// The way to a NATS server that keeps messages, if the name is that of one.
pub(crate) fn way(dial: &Dialler, name: &str) -> Option<Result<Way, Failure>> {
    Some(place(dial, name)?.and_then(|(place, options)| {
        let sender = DurableSender::new(place, &options);
        sender.map(|sender| Way::Durable(Arc::new(sender))).map_err(|error| failure(&error))
    }))
}

/// Has messages that are kept at a URL put into an inbox, as those of a member of a group.
pub(crate) fn take(dial: &Dialler, url: &str, group: &str, inbox: &Arc<Inbox>) -> Result<Taking, Failure> {
    let no_place = || Err(Failure::new(Failure::INVALID_ARGUMENT, format!("no messages are kept at {url}")));
    let (place, options) = place(dial, url).unwrap_or_else(no_place)?;
    let inbox = Arc::clone(inbox);
    let sink = Box::new(move |bytes, delivery| inbox.keep(bytes, delivery));
    take_durable(place, &options, group, sink).map_err(|error| failure(&error))
}

/// What a URL at which messages are kept says, and how it is reached: as the same URL of a connection would be.
fn place(dial: &Dialler, url: &str) -> Option<Result<(Durable, Options), Failure>> {
    let invalid = |why: String| Failure::new(Failure::INVALID_ARGUMENT, format!("{url}: {why}"));
    let place = durable(url)?.map_err(invalid);
    Some(place.and_then(|place| {
        let channel = dial(&url.replacen("jetstream", "nats", 1))?;
        Ok((place, channel.options().clone()))
    }))
}

fn failure(error: &ConnectError) -> Failure {
    let code = match error {
        ConnectError::Options(_) => Failure::INVALID_ARGUMENT,
        ConnectError::Refused(_) => Failure::PERMISSION_DENIED,
        ConnectError::Untrusted(_) => Failure::UNAUTHENTICATED,
        _ => Failure::UNAVAILABLE,
    };
    Failure::new(code, error.to_string())
}

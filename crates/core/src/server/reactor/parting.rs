//! Parting from clients whose connections have reached their age: a goodbye, time for the calls under way, and the end. The
//! client makes another connection: so clients behind a name or a load balancer find servers that were added meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::descriptors;
use nearcall_transport::{LinkError, Outgoing};

use super::Reactor;
use super::aging::Step;
use super::goodbye::{GOODBYE, say_goodbye};
use crate::server::inbound::Inbound;
use crate::server::inbound::request::Request;
use crate::sync::Ordering;

/// How often a connection whose client was sent a goodbye is looked at.
const LOOK: Duration = Duration::from_millis(50);

impl Reactor {
    /// The alarm has rung: does what is due for connections that have reached their age.
    pub(super) fn see_to_old(&mut self) {
        let Some(aging) = &mut self.aging else { return };
        descriptors::clear(aging.alarm());
        let (now, grace) = (Instant::now(), aging.age.grace);
        while let Some((token, step)) = self.aging.as_mut().and_then(|aging| aging.take(now)) {
            let Some(client) = self.connections.get(&token).cloned() else { continue };
            let until = match step {
                Step::Goodbye => {
                    say_goodbye(&client, GOODBYE);
                    now + grace
                }
                Step::End(until) => until,
            };
            if step != Step::Goodbye && (now >= until || has_parted(&client)) {
                self.unlist(&client);
                self.drop_client(&client, &LinkError::Closed);
            } else if let Some(aging) = &mut self.aging {
                aging.push(until.min(now + LOOK), token, Step::End(until));
            }
        }
        if let Some(aging) = &self.aging {
            aging.set_alarm();
        }
    }
}

/// Goes on with the parting from a client. Whether the connection may end: no call is under way or will be, and the client
/// has all that was sent to it.
fn has_parted(client: &Arc<Inbound<Request>>) -> bool {
    let connection = &client.connection;
    // On a link that takes last calls this also ends the client's time for them, once it has passed.
    let delivered = connection.link.has_delivered();
    if connection.session().under_way() > 0 || connection.link.queued() > 0 {
        return false;
    }
    if connection.link.properties().takes_last_calls {
        return delivered;
    }
    // Only the thread that holds the reactor begins calls. Relaxed: only that thread reads the flag.
    if !connection.parted.swap(true, Ordering::Relaxed) {
        say_goodbye(client, Outgoing::LAST);
    }
    // The client hangs up when it has read that. Then its last one-way calls have been taken in.
    false
}

//! Parting from clients: when the server stops, and when a connection has reached its age. A goodbye asks the client for
//! another connection; then the calls under way have time to end. Because of the age, clients behind a name or a load
//! balancer find servers that were added meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_transport::{LinkError, Outgoing};

use super::Reactor;
use crate::server::connection::GOODBYE;
use crate::server::inbound::request::Request;
use crate::server::inbound::{HUNG_UP, Inbound, PARTED, STALLED};
use crate::server::shared::DELIVERED;
use crate::server::shared::mailbox::News;
use crate::vary::vary;

/// How often a connection whose client was sent a goodbye is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How long what a client has left when it hung up may wait until there is room for it.
pub(super) const LEFT_TIME: Duration = Duration::from_secs(5);

/// Ages differ by up to a tenth, so that connections that were made together do not end together (gRPC's proposal A9).
const JITTER: f64 = 0.1;

impl Reactor {
    /// Parts from the clients in three steps; called at each wake-up while the server stops. First sends each client a
    /// GOAWAY: the server takes no new calls. Once all calls under way are answered, sends a last GOAWAY: nothing else
    /// comes. Then reports when every client has what was sent to it.
    pub(super) fn part_from_all(&mut self) {
        self.handshakes.stop();
        if !std::mem::replace(&mut self.said_goodbye, true) {
            self.tell_clients(GOODBYE);
            for client in self.connections.values() {
                client.nudge_kept();
            }
        }
        // On a link that takes last calls, `has_delivered` also ends the client's time for them, once it has passed.
        let links = self.connections.values().map(|client| &client.connection.link);
        links.filter(|link| link.properties().takes_last_calls).for_each(|link| _ = link.has_delivered());
        // A call may have begun just before the server was stopped.
        if !self.shared.is_idle() {
            return;
        }
        // Only the thread that holds this reactor begins calls, and it begins none any more. So a call for which a
        // client still waits when it reads this GOAWAY was not begun, and the client may send it to another server.
        if !std::mem::replace(&mut self.said_last, true) {
            self.tell_clients(Outgoing::LAST);
        }
        let is_delivered = |one: &Inbound<_>| {
            let link = &one.connection.link;
            one.marks.has(HUNG_UP) || (link.has_delivered() && link.queued() == 0)
        };
        if self.handshakes.is_empty() && self.connections.values().all(|one| is_delivered(one)) {
            self.shared.reach(DELIVERED);
        }
    }

    /// Sends a GOAWAY with `flags` to all clients.
    fn tell_clients(&self, flags: u8) {
        let clients = self.connections.values().filter(|client| !client.connection.is_own_clients());
        clients.for_each(|client| client.connection.say_goodbye(flags));
    }

    /// A connection is new: it ends some time, if connections do.
    pub(super) fn begin_to_age(&self, token: u64) {
        if let Some(age) = self.shared.limits.age {
            self.shared.mailbox.tell_at(Instant::now() + vary(age.limit, JITTER), token, News::Due);
        }
    }

    /// Does what is due for a connection that has reached its age.
    pub(super) fn part_from(&mut self, client: &Arc<Inbound<Request>>) {
        let Some(age) = self.shared.limits.age else { return };
        let now = Instant::now();
        let is_first = client.parts_until.get().is_none();
        let until = *client.parts_until.get_or_init(|| now + age.grace);
        if is_first {
            client.connection.say_goodbye(GOODBYE);
        } else if now >= until || has_parted(client) {
            self.unlist(client);
            self.drop_client(client, &LinkError::Closed);
            return;
        }
        self.shared.mailbox.tell_at(until.min(now + LOOK_INTERVAL), client.connection.token(), News::Due);
    }

    /// A client has hung up a while ago, and has left something for which there was no room. If nothing of it is under way, it is
    /// not waited for any longer: others may fill the memory for as long as they like.
    pub(super) fn leave_behind(&mut self, client: &Arc<Inbound<Request>>) {
        if client.marks.has(STALLED) && client.connection.session().under_way() == 0 {
            self.unlist(client);
            self.drop_client(client, &LinkError::Closed);
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
    // Only the thread that holds the reactor begins calls.
    if client.marks.set(PARTED) {
        connection.say_goodbye(Outgoing::LAST);
    }
    // The client hangs up when it has read that. Then its last one-way calls have been taken in.
    false
}

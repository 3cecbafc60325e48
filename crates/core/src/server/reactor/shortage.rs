//! When one call finds no room because of what all clients keep together: who keeps much, and does nothing with it, is hung
//! up on.
//!
//! Each client gets but a part of what the others leave. With many of them nothing is left all the same, and there are
//! clients that would keep it for ever: with half a message that never ends, with replies that they do not read, with streams
//! that wait for their handlers and those for them. The idea is that of Envoy's overload manager, which resets the streams that
//! use most memory, and of gRPC's resource quota.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_transport::LinkError;

use super::{Reactor, SHORT, Shortage};
use crate::server::shared::mailbox::News;

/// So often it is looked whether calls still find no room.
const INTERVAL: Duration = Duration::from_secs(1);
/// With the look of this number, whoever has done nothing since the first one is hung up on.
const LOOKS: u32 = 5;
/// Clients that keep no more than this are let be: each may have it in any case.
const LITTLE: usize = 1 << 20;

impl Reactor {
    /// Looks whether one call has found no room. Called at each wake-up.
    pub(super) fn note_shortage(&mut self) {
        if self.shortage.is_none() && self.shared.budget.take_shortage() {
            let clients = self.connections.iter().map(|(&token, client)| (token, client.connection.idle().1)).collect();
            self.shortage = Some(Shortage { looks: 0, clients });
            self.shared.mailbox.tell_at(Instant::now() + INTERVAL, SHORT, News::Due);
        }
    }

    /// Looks again. After a while, if calls still find no room, hangs up on clients that keep others from it for nothing.
    pub(super) fn look_at_shortage(&mut self) {
        let is_short = self.shared.budget.take_shortage();
        let Some(shortage) = &mut self.shortage else { return };
        shortage.looks += 1;
        if shortage.looks < LOOKS {
            self.shared.mailbox.tell_at(Instant::now() + INTERVAL, SHORT, News::Due);
        } else if let Some(shortage) = self.shortage.take()
            && is_short
        {
            self.hang_up_on_idle(&shortage.clients);
        }
    }

    /// Hangs up on clients that are no further than they were: on those that keep most, until a quarter of all memory is free.
    fn hang_up_on_idle(&mut self, clients: &[(u64, usize)]) {
        let mut idle: Vec<_> = clients
            .iter()
            .filter_map(|&(token, before)| {
                let client = self.connections.get(&token)?;
                let (kept, steps) = client.connection.idle();
                (steps == before && kept > LITTLE).then(|| (kept, Arc::clone(client)))
            })
            .collect();
        idle.sort_unstable_by_key(|&(kept, _)| Reverse(kept));
        let limit = self.shared.budget.limit();
        let mut used = self.shared.budget.used();
        for (kept, client) in idle {
            if used <= limit - limit / 4 {
                break;
            }
            used = used.saturating_sub(kept);
            let why = format!("{kept} bytes of the server's memory waited for it while others found none");
            self.unlist(&client);
            self.drop_client(&client, &LinkError::Broken(why));
        }
    }
}

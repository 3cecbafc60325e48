//! When one call finds no room because of what all clients keep together: who keeps much, and hardly goes on with it, is hung
//! up on.
//!
//! Each client gets but a part of what the others leave. With many of them nothing is left all the same, and there are
//! clients that would keep it for ever: with half a message that never ends, with replies that they do not read, with streams
//! that wait for their handlers and those for them. The idea is that of Envoy's overload manager, which resets the streams that
//! use most memory, and of the least rate of data that Kestrel and Apache ask of their clients.

use std::time::{Duration, Instant};

use nearcall_transport::LinkError;

use super::debts::Shortage;
use super::{Reactor, SHORT};
use crate::server::shared::mailbox::News;

/// So often it is looked whether calls still find no room.
const INTERVAL: Duration = Duration::from_secs(1);
/// Nobody is hung up on before the look of this number. After so many without a call that finds no room, all is forgotten.
const LOOKS: u32 = 5;

impl Reactor {
    /// Looks whether one call has found no room. Called at each wake-up.
    pub(super) fn note_shortage(&mut self) {
        if self.shortage.is_none() && self.shared.budget.take_shortage() {
            self.look_on(Shortage::default());
        }
    }

    /// Looks again. If calls have found no room for some seconds, hangs up on clients that keep others from it for nothing.
    pub(super) fn look_at_shortage(&mut self) {
        let is_short = self.shared.budget.take_shortage();
        let Some(mut shortage) = self.shortage.take() else { return };
        shortage.looks += 1;
        if is_short {
            shortage.last = shortage.looks;
        } else if shortage.looks - shortage.last >= LOOKS {
            return;
        }
        let shortage = self.look_on(shortage);
        if is_short && shortage.looks >= LOOKS {
            let debtors = shortage.debtors();
            self.hang_up_on(debtors);
        }
    }

    fn look_on(&mut self, mut shortage: Shortage) -> &Shortage {
        shortage.reckon(self.connections.iter());
        self.shared.mailbox.tell_at(Instant::now() + INTERVAL, SHORT, News::Due);
        self.shortage.insert(shortage)
    }

    /// Hangs up on these clients in turn, until half of all memory is free: others wait that will need some, too.
    fn hang_up_on(&mut self, debtors: Vec<(u64, usize)>) {
        let limit = self.shared.budget.limit();
        let mut used = self.shared.budget.used();
        for (token, kept) in debtors {
            if used <= limit / 2 {
                break;
            }
            used = used.saturating_sub(kept);
            if let Some(client) = self.connections.get(&token).cloned() {
                let why =
                    format!("{kept} bytes waited for it and hardly went on, while calls found no room in max_memory");
                self.unlist(&client);
                // To the operator this is a lack of memory, to the client an end for which it is to blame.
                client.connection.tell_end(&LinkError::Exhausted(why.clone()));
                self.drop_client(&client, &LinkError::Broken(why));
            }
        }
    }
}

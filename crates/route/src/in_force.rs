//! The table in force, and the endpoints in use.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;

use crate::endpoint::Endpoint;
use crate::left::Left;
use crate::table::Table;

/// A table, with the endpoints that it names. They are used until the last sender that has read it is done.
pub(crate) struct InForce {
    pub(crate) table: Table,
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    pub(crate) known: Arc<Mutex<Known>>,
    /// How long what is queued for endpoints that nobody uses then may still be sent.
    pub(crate) grace: Duration,
}

impl Drop for InForce {
    fn drop(&mut self) {
        let mut unused = std::mem::take(&mut self.endpoints);
        let mut known = self.known.lock();
        unused.retain(|endpoint| known.leave(endpoint));
        known.gone.push(std::mem::take(&mut self.table));
        drop(known);
        close_all(&unused, Instant::now() + self.grace);
    }
}

/// The endpoints in use.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) endpoints: HashMap<String, Arc<Endpoint>>,
    /// Those that are used without being in the table, in the order of their first use.
    pub(crate) direct: VecDeque<Arc<Endpoint>>,
    /// Where those are entered that leave.
    pub(crate) left: Arc<Left>,
    /// Tables that nobody uses any more. A sender may have been the last, and does not free thousands of entries.
    pub(crate) gone: Vec<Table>,
}

impl Known {
    /// One less uses an endpoint. Whether that was the last.
    pub(crate) fn leave(&mut self, endpoint: &Endpoint) -> bool {
        let last = endpoint.end_use();
        if last && let Some(gone) = self.endpoints.remove(endpoint.name()) {
            self.left.enter(gone);
        }
        last
    }
}

/// Closes endpoints; what waits may still be sent until then.
pub(crate) fn close_all<'a>(endpoints: impl IntoIterator<Item = &'a Arc<Endpoint>>, until: Instant) {
    endpoints.into_iter().for_each(|endpoint| endpoint.close(until));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_who_uses_a_table_does_not_free_it() {
        let known = Arc::<Mutex<Known>>::default();
        let own = crate::table::Own::default();
        let table = Table::parse_text("newrt|start|t1\nnewrt|end|0\n", &own, &Table::empty()).expect("a table");
        let in_force = InForce { table, endpoints: Vec::new(), known: Arc::clone(&known), grace: Duration::ZERO };
        std::thread::spawn(|| drop(in_force)).join().expect("a sender ends");
        let ids: Vec<_> = known.lock().gone.iter().map(|table| table.id().to_owned()).collect();
        assert_eq!(ids, ["t1"]);
    }
}

//! The connections that are open, and what is known of each, for those who look at the server.
//!
//! All that is shown is counted anyway: a call costs no more because of this. A connection costs an entry when it begins
//! and when it ends.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Instant;

use nearcall_platform::lock::Mutex;
use nearcall_transport::Peer;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The most connections that one look shows.
pub const MOST_SHOWN: usize = 1000;

/// A connection that can be looked at.
pub(in crate::server) trait Listed: Send + Sync {
    /// What is known of it now.
    fn look(&self) -> ConnectionRow;
}

/// What is known of one connection, under the names of `nearcall.introspection.ConnectionStatistics`.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionRow {
    /// Numbers grow with the time at which connections came; among all processes that serve together they are different.
    pub number: u64,
    /// The URL that the client has connected to.
    #[serde(serialize_with = "text")]
    pub url: Arc<str>,
    /// Who the client is.
    #[serde(serialize_with = "peer_as_map")]
    pub peer: Arc<Peer>,
    /// For how long it is connected.
    #[serde(rename = "age", serialize_with = "seconds")]
    pub since: Instant,
    /// Calls that have arrived.
    pub started: u64,
    /// Calls that are over.
    pub ended: u64,
    /// Bytes that wait for the client to read them.
    pub queued: usize,
    /// Bytes kept because of the client, those that wait included.
    pub memory: usize,
    /// The client watches the statistics.
    pub watches: bool,
    /// The process that serves it.
    pub pid: u32,
    /// Which of the processes that serve together this is, if there are several.
    pub worker: Option<usize>,
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn seconds<S: Serializer>(since: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(since.elapsed().as_secs_f64())
}

/// A peer as `nearcall.context().peer` has it.
fn peer_as_map<S: Serializer>(peer: &Arc<Peer>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    match &**peer {
        Peer::Local { pid, uid, gid } => {
            // 0: the system does not say.
            if *pid != 0 {
                map.serialize_entry("pid", pid)?;
            }
            map.serialize_entry("uid", uid)?;
            map.serialize_entry("gid", gid)?;
        }
        Peer::Remote(address) => map.serialize_entry("address", &address.to_string())?,
        Peer::Beyond(broker) => map.serialize_entry("broker", broker)?,
        Peer::Certified { address, subject, names } => {
            map.serialize_entry("address", &address.to_string())?;
            map.serialize_entry("subject", subject)?;
            map.serialize_entry("names", names)?;
        }
    }
    map.end()
}

/// The connections of one server, by the poller's tokens, which only grow.
#[derive(Default)]
pub(in crate::server) struct Roster {
    open: Mutex<BTreeMap<u64, Weak<dyn Listed>>>,
}

impl Roster {
    pub(in crate::server) fn add(&self, token: u64, connection: Weak<dyn Listed>) {
        self.open.lock().insert(token, connection);
    }

    pub(in crate::server) fn remove(&self, token: u64) {
        self.open.lock().remove(&token);
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.open.lock().len()
    }

    /// What is known of the first connections whose numbers are greater than `after`, at most `limit` and
    /// [`MOST_SHOWN`], in the order of their numbers. The process is one of several that serve together: its number, and
    /// how many there are.
    pub(in crate::server) fn page(
        &self,
        after: u64,
        limit: usize,
        place: Option<(usize, usize)>,
    ) -> Vec<ConnectionRow> {
        let (worker, count) = place.map_or((0, 1), |(worker, count)| (worker as u64, count.max(1) as u64));
        let first = after.checked_sub(worker).map_or(Bound::Unbounded, |over| Bound::Excluded(over / count));
        let found: Vec<_> = {
            let open = self.open.lock();
            open.range((first, Bound::Unbounded)).take(limit.min(MOST_SHOWN)).map(|(_, one)| Weak::clone(one)).collect()
        };
        // Outside the lock: clients come and go meanwhile.
        let rows = found.iter().filter_map(Weak::upgrade).map(|one| one.look());
        rows.map(|row| ConnectionRow {
            number: row.number * count + worker,
            worker: place.map(|(worker, _)| worker),
            ..row
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(u64);

    impl Listed for One {
        fn look(&self) -> ConnectionRow {
            ConnectionRow {
                number: self.0,
                url: "shm://one".into(),
                peer: Arc::new(Peer::Local { pid: 0, uid: 1, gid: 2 }),
                since: Instant::now(),
                started: 0,
                ended: 0,
                queued: 0,
                memory: 0,
                watches: false,
                pid: 7,
                worker: None,
            }
        }
    }

    fn numbers(roster: &Roster, after: u64, limit: usize, place: Option<(usize, usize)>) -> Vec<u64> {
        roster.page(after, limit, place).iter().map(|row| row.number).collect()
    }

    #[test]
    fn pages_follow_each_other_and_are_bounded() {
        let roster = Roster::default();
        let open: Vec<_> = (3..3003).map(|token| Arc::new(One(token))).collect();
        for one in &open {
            let listed: Arc<dyn Listed> = Arc::<One>::clone(one);
            roster.add(one.0, Arc::downgrade(&listed));
        }
        assert_eq!(numbers(&roster, 0, 2, None), [3, 4]);
        assert_eq!(numbers(&roster, 4, 2, None), [5, 6]);
        assert_eq!(numbers(&roster, 0, usize::MAX, None).len(), MOST_SHOWN);
        assert_eq!(numbers(&roster, u64::MAX, 5, None), [] as [u64; 0]);
        roster.remove(5);
        drop(open);
        assert_eq!(numbers(&roster, 4, 2, None), [] as [u64; 0], "they are gone");
    }

    #[test]
    fn numbers_of_workers_differ_and_none_is_left_out() {
        let open: Vec<Arc<dyn Listed>> = (3..40).map(|token| Arc::new(One(token)) as _).collect();
        let roster = Roster::default();
        for (token, one) in (3..).zip(&open) {
            roster.add(token, Arc::downgrade(one));
        }
        for after in 0..130 {
            for worker in 0..3 {
                let expected: Vec<_> =
                    (3..40).map(|token| token * 3 + worker).filter(|&number| number > after).collect();
                assert_eq!(numbers(&roster, after, 100, Some((worker as usize, 3))), expected, "after {after}");
            }
        }
    }
}

//! The calls of one connection for which frames may still come.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::server::call::ServerCall;

/// Calls by the client's numbers for them.
#[derive(Debug, Default)]
pub(in crate::server) struct Calls {
    tracked: HashMap<u32, Tracked>,
    /// How many of the calls have a stream.
    streams: usize,
}

#[derive(Debug)]
struct Tracked {
    call: Arc<ServerCall>,
    streams: bool,
}

impl Calls {
    pub(in crate::server) fn get(&self, id: u32) -> Option<Arc<ServerCall>> {
        self.tracked.get(&id).map(|tracked| Arc::clone(&tracked.call))
    }

    /// How many calls have a stream.
    pub(in crate::server) fn streams(&self) -> usize {
        self.streams
    }

    /// Puts in a call. `false` if there is a call with that number already: the old one stays, because the end of the
    /// connection must reach it.
    pub(in crate::server) fn insert(&mut self, id: u32, call: &Arc<ServerCall>, streams: bool) -> bool {
        let Entry::Vacant(place) = self.tracked.entry(id) else { return false };
        place.insert(Tracked { call: Arc::clone(call), streams });
        self.streams += usize::from(streams);
        true
    }

    pub(in crate::server) fn remove(&mut self, id: u32) {
        if let Some(tracked) = self.tracked.remove(&id) {
            self.streams -= usize::from(tracked.streams);
        }
    }

    /// All calls.
    pub(in crate::server) fn all(&self) -> Vec<Arc<ServerCall>> {
        self.tracked.values().map(|tracked| Arc::clone(&tracked.call)).collect()
    }

    /// Takes all calls out.
    pub(in crate::server) fn take(&mut self) -> impl Iterator<Item = Arc<ServerCall>> + use<> {
        std::mem::take(self).tracked.into_values().map(|tracked| tracked.call)
    }
}

//! The calls of one connection for which frames may still come.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::server::call::ServerCall;

/// Calls by the client's numbers for them.
#[derive(Debug, Default)]
pub(in crate::server) struct Calls {
    tracked: HashMap<u32, Arc<ServerCall>>,
    /// How many of the calls have a stream.
    streams: usize,
}

impl Calls {
    pub(in crate::server) fn get(&self, id: u32) -> Option<Arc<ServerCall>> {
        self.tracked.get(&id).map(Arc::clone)
    }

    /// How many calls have a stream.
    pub(in crate::server) fn streams(&self) -> usize {
        self.streams
    }

    /// Puts in a call. `false` if there is a call with that number already: the old one stays, because the end of the
    /// connection must reach it.
    pub(in crate::server) fn insert(&mut self, call: &Arc<ServerCall>) -> bool {
        let Entry::Vacant(place) = self.tracked.entry(call.id()) else { return false };
        place.insert(Arc::clone(call));
        self.streams += usize::from(call.routing.streams);
        true
    }

    pub(in crate::server) fn remove(&mut self, id: u32) {
        if let Some(call) = self.tracked.remove(&id) {
            self.streams -= usize::from(call.routing.streams);
        }
    }

    /// All calls.
    pub(in crate::server) fn all(&self) -> Vec<Arc<ServerCall>> {
        self.tracked.values().map(Arc::clone).collect()
    }

    /// Takes all calls out.
    pub(in crate::server) fn take(&mut self) -> impl Iterator<Item = Arc<ServerCall>> + use<> {
        std::mem::take(self).tracked.into_values()
    }
}

//! What the endpoints have done that are no longer in use: when a table goes, what its node has done becomes no less.

use std::sync::Arc;

use nearcall_core::lock::InnerMutex;

use crate::endpoint::{Counts, Endpoint};

/// Those of one node.
#[derive(Debug, Default)]
pub struct Left(InnerMutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How many have left.
    number: u64,
    /// What those have done together whose threads have ended.
    over: Counts,
    /// Those that may still send what waits.
    leaving: Vec<Arc<Endpoint>>,
}

impl Left {
    /// An endpoint is no longer in use. The caller holds the lock of the place where it was, so that nobody finds it in both
    /// places, or in neither, [without seeing it](Self::number).
    pub(crate) fn enter(&self, endpoint: Arc<Endpoint>) {
        let mut state = self.0.lock();
        state.number += 1;
        state.leaving.push(endpoint);
    }

    /// The thread of an endpoint has ended.
    pub(crate) fn note_over(&self, endpoint: &Arc<Endpoint>) {
        let counts = endpoint.counts();
        let mut state = self.0.lock();
        let Some(place) = state.leaving.iter().position(|each| Arc::ptr_eq(each, endpoint)) else { return };
        state.over += counts;
        let gone = state.leaving.swap_remove(place);
        drop(state);
        drop(gone);
    }

    /// How many have left. If it is the same before and after the others were counted, none has left meanwhile.
    pub(crate) fn number(&self) -> u64 {
        self.0.lock().number
    }

    /// How many have left, and what they have done together.
    pub(crate) fn counts(&self) -> (u64, Counts) {
        let (number, mut counts, leaving) = {
            let state = self.0.lock();
            (state.number, state.over, state.leaving.clone())
        };
        // Without the lock: theirs are not for threads that hold one. What ends meanwhile counts what it has counted.
        for endpoint in leaving {
            counts += endpoint.counts();
        }
        (number, counts)
    }
}

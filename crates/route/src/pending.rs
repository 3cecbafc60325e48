//! A message that waits for room without a thread that waits: in an event loop.

use std::sync::Arc;

use crate::bell::Bell;
use crate::calls::Place;
use crate::endpoint::Endpoint;
use crate::passing::{Letter, SendError, attempt, full};

/// A message that some groups have not taken yet, because they have no room. The node's [`Bell`] rings when it is time to
/// try again.
#[derive(Debug)]
pub struct Pending {
    message: Vec<u8>,
    /// The groups that must still take it, each with the place of the member whose turn it is.
    left: Vec<(Vec<Arc<Endpoint>>, usize)>,
    /// What other groups have said.
    result: Result<(), SendError>,
    call: Option<Arc<Place>>,
    bell: Arc<Bell>,
}

impl Pending {
    pub(crate) fn new(
        message: Vec<u8>,
        left: Vec<(Vec<Arc<Endpoint>>, usize)>,
        result: Result<(), SendError>,
        call: Option<Arc<Place>>,
        bell: Arc<Bell>,
    ) -> Self {
        bell.begin_waiting();
        Self { message, left, result, call, bell }
    }

    /// Tries again. Whether everything is done. To be called once before the bell is waited for.
    ///
    /// # Errors
    /// The first group that did not take the message; others may have it.
    pub fn attempt(&mut self) -> Result<bool, SendError> {
        let pieces = [&self.message[..], &[]];
        let letter = Letter { pieces: &pieces, call: self.call.as_ref() };
        let mut result = Ok(());
        self.left.retain(|(group, first)| {
            let group: Vec<&Arc<Endpoint>> = group.iter().collect();
            let passed = attempt(&group, *first, letter);
            let waits = matches!(passed, Ok(false));
            result = std::mem::replace(&mut result, Ok(())).and(passed.map(drop));
            waits
        });
        self.result = std::mem::replace(&mut self.result, Ok(())).and(result);
        if self.left.is_empty() { std::mem::replace(&mut self.result, Ok(())).map(|()| true) } else { Ok(false) }
    }

    /// The error for giving up: there was no room in time.
    #[must_use]
    pub fn late(&self) -> Option<SendError> {
        self.left.first().map(|(group, first)| full(&group[*first]))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.bell.end_waiting();
    }
}

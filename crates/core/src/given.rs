//! References that come with a message. The receiver holds them once it has the message. It releases those that nobody
//! reads, and those that a decoder passes over.

use std::collections::HashMap;
use std::num::NonZeroU64;

use nearcall_transport::Payload;
use nearcall_wire::{FrameHead, Giver, Kind, Released, references_in};

/// References in one release frame: so many fit into a frame that is not long.
const RELEASED_AT_ONCE: usize = 64;

/// The references given with a message, each as often as it occurs. Ask only where the message may hold references.
#[must_use]
pub fn given_in(head: &FrameHead, payload: &Payload) -> Vec<NonZeroU64> {
    let mut given = Vec::new();
    if matches!(head.kind, Kind::Call | Kind::Reply | Kind::Item) && !payload.is_empty() {
        references_in(&payload.values(head), |giver, id| {
            if giver == Giver::Sender {
                given.push(id);
            }
        });
    }
    given
}

/// The references in `given` that are not in `taken`; of several equal ones, as many as are left over.
#[must_use]
pub fn left_over(given: &[NonZeroU64], taken: &[NonZeroU64]) -> Vec<NonZeroU64> {
    if taken.len() >= given.len() {
        return Vec::new();
    }
    let mut times: HashMap<NonZeroU64, usize> = HashMap::with_capacity(taken.len());
    for &id in taken {
        *times.entry(id).or_default() += 1;
    }
    let mut is_left = |id: &NonZeroU64| match times.get_mut(id) {
        Some(times) if *times > 0 => {
            *times -= 1;
            false
        }
        _ => true,
    };
    given.iter().copied().filter(|id| is_left(id)).collect()
}

/// The payloads of frames that release each of these references once.
pub(crate) fn release_payloads(given: &[NonZeroU64]) -> impl Iterator<Item = Vec<u8>> {
    given.chunks(RELEASED_AT_ONCE).map(|some| Released(some.iter().map(|&id| (id, 1)).collect()).encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u64]) -> Vec<NonZeroU64> {
        numbers.iter().map(|&number| NonZeroU64::new(number).expect("not 0")).collect()
    }

    #[test]
    fn what_was_given_more_often_than_taken_is_left_over() {
        let given = ids(&[1, 2, 1, 3, 1]);
        assert_eq!(left_over(&given, &[]), given);
        assert_eq!(left_over(&given, &ids(&[1, 3])), ids(&[2, 1, 1]));
        assert_eq!(left_over(&given, &ids(&[3, 1, 1, 2, 1])), []);
        assert_eq!(left_over(&given, &ids(&[9, 9])), given, "what was not given counts nothing");
    }

    #[test]
    fn releases_are_split_into_frames_that_are_not_long() {
        let given = ids(&(1..=130).collect::<Vec<_>>());
        let lengths: Vec<usize> = release_payloads(&given).map(|payload| payload.len() / 12).collect();
        assert_eq!(lengths, [64, 64, 2]);
    }
}

//! References that come with a message. The receiver holds them once it has the message: of those that nobody reads, or that
//! a decoder passes over, the other side is told that they are not held.

use std::collections::HashMap;
use std::num::NonZeroU64;

use nearcall_transport::Payload;
use nearcall_wire::{FrameHead, Giver, Kind, Released, references_in};

/// References in one release frame: so many fit into a frame that is not long.
const RELEASED_AT_ONCE: usize = 64;

/// What was given with a message, as often as it stands there; to be asked only where the message may hold references.
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

/// What is in `given` and not in `taken`, each as often.
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

/// The payloads of the frames that let go of each once.
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

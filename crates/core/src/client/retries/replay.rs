//! Copies of what a call with streams has sent, kept while the server may still refuse the call without having begun
//! it: then the call is sent again from its start.

use nearcall_transport::{Body, Compress, Outgoing};
use nearcall_wire::Kind;

use crate::flow::cost;

/// The most bytes that are kept of one call. Less than what a stream may send before the server grants more, so that
/// all of it can be sent again without waiting.
const MAX_KEPT_BYTES: i64 = 256 << 10;

/// The arguments of a call with streams, its items, and whether there are more to come.
#[derive(Debug)]
pub struct Replay {
    arguments: Vec<u8>,
    items: Vec<(Compress, Vec<u8>)>,
    ended: bool,
    /// The flow-control cost of the arguments and all items.
    cost: i64,
}

impl Replay {
    /// Keeps a call's arguments. `None` if they are too long, or not plain bytes.
    #[must_use]
    pub fn new(arguments: Body<'_>) -> Option<Self> {
        let mut kept = Self { arguments: Vec::new(), items: Vec::new(), ended: false, cost: 0 };
        kept.arguments = kept.copy(arguments)?;
        Some(kept)
    }

    /// Whether an item may be kept, too.
    #[must_use]
    pub fn fits(&self, item: Body<'_>) -> bool {
        !matches!(item, Body::Parts(..)) && self.cost + cost(item.len()) <= MAX_KEPT_BYTES
    }

    /// Keeps an item that is about to be sent. `false` if it does not [fit](Replay::fits): then stop keeping this call.
    #[must_use]
    pub fn item(&mut self, item: &Outgoing<'_>) -> bool {
        let copy = self.copy(item.body);
        let fits = copy.is_some();
        self.items.extend(copy.map(|copy| (item.compress, copy)));
        fits
    }

    /// No more items come.
    pub fn end(&mut self) {
        self.ended = true;
    }

    fn copy(&mut self, body: Body<'_>) -> Option<Vec<u8>> {
        if !self.fits(body) {
            return None;
        }
        self.cost += cost(body.len());
        match body {
            Body::Whole(bytes) => Some(bytes.to_vec()),
            Body::Pieces(pieces) => Some(pieces.concat()),
            Body::Parts(..) => None,
        }
    }

    /// The arguments.
    #[must_use]
    pub fn arguments(&self) -> &[u8] {
        &self.arguments
    }

    /// The frame at this place after the arguments, counted from 0: an item or the end. `None` if nothing is there yet.
    #[must_use]
    pub fn frame(&self, place: usize) -> Option<Outgoing<'_>> {
        match self.items.get(place) {
            Some((compress, item)) => {
                Some(Outgoing { compress: *compress, ..Outgoing::new(Kind::Item, Body::Whole(item)) })
            }
            None if self.ended && place == self.items.len() => Some(Outgoing::new(Kind::End, Body::Whole(&[]))),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::WINDOW;

    fn item(bytes: &[u8]) -> Outgoing<'_> {
        Outgoing::new(Kind::Item, Body::Whole(bytes))
    }

    fn kinds(kept: &Replay) -> Vec<Kind> {
        (0..).map_while(|place| kept.frame(place)).map(|frame| frame.kind).collect()
    }

    #[test]
    fn frames_come_back_in_their_order_and_the_end_once() {
        let mut kept = Replay::new(Body::Pieces(&[b"argu", b"ments"])).expect("little");
        assert_eq!(kept.arguments(), b"arguments");
        assert_eq!(kinds(&kept), []);
        assert!(kept.item(&Outgoing { compress: Compress::NotThis, ..item(b"one") }));
        assert!(kept.item(&item(b"")));
        assert_eq!(kinds(&kept), [Kind::Item, Kind::Item]);
        let compress = (0..2).map(|place| kept.frame(place).map(|frame| frame.compress));
        assert_eq!(compress.collect::<Vec<_>>(), [Some(Compress::NotThis), Some(Compress::AsUsual)]);
        kept.end();
        assert_eq!(kinds(&kept), [Kind::Item, Kind::Item, Kind::End]);
    }

    #[test]
    fn what_is_kept_is_bounded_however_it_is_cut_and_fits_into_a_window() {
        const { assert!(MAX_KEPT_BYTES < WINDOW) };
        assert!(Replay::new(Body::Whole(&vec![0; MAX_KEPT_BYTES as usize])).is_none());
        for len in [0, 1, 1000, 100_000] {
            let mut kept = Replay::new(Body::Whole(b"")).expect("nothing");
            let bytes = vec![0; len];
            let items = (0..MAX_KEPT_BYTES).take_while(|_| kept.item(&item(&bytes))).count();
            assert!(items as i64 * cost(len) <= MAX_KEPT_BYTES, "{items} of {len}");
            assert_eq!(kinds(&kept).len(), items);
            assert!(items > 0, "some are kept");
        }
    }

    #[test]
    fn buffers_beside_a_message_are_not_kept() {
        assert!(Replay::new(Body::Parts(b"", &[b"lent"])).is_none());
    }
}

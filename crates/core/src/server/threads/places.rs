//! The places for handlers of streams in threads, and whose turn it is to have the next one.

use std::collections::{BTreeSet, HashMap};

/// The places for handlers of streams. These run for as long as their clients like, so no client may have all places: it
/// gets one more while it has fewer than are free. Of the clients whose streams wait, the one with the fewest places is
/// next.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: usize,
    /// The clients that have places, or streams that wait for one.
    clients: HashMap<u64, Client>,
    /// The clients whose streams wait. The first is next.
    order: BTreeSet<PlaceTurn>,
    /// How often a client has lined up.
    turns: u64,
}

/// How many places a client has, since which turn it waits, and the client.
type PlaceTurn = (usize, u64, u64);

#[derive(Debug, Default)]
struct Client {
    taken: usize,
    /// How many of its streams wait.
    waiting: usize,
    /// The client's place in the order, while streams of it wait.
    turn: Option<PlaceTurn>,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: 0, clients: HashMap::new(), order: BTreeSet::new(), turns: 0 }
    }

    pub(super) fn are_full(&self) -> bool {
        self.taken >= self.most
    }

    fn may_take(&self, has: usize) -> bool {
        has + self.taken < self.most
    }

    /// Takes a place for a client, if it may have one more.
    pub(super) fn take(&mut self, client: u64) -> bool {
        let has = self.clients.get(&client).map_or(0, |client| client.taken);
        let takes = self.may_take(has);
        if takes {
            self.taken += 1;
            self.change(client, |client| client.taken += 1);
        }
        takes
    }

    /// A client leaves a place.
    pub(super) fn leave(&mut self, client: u64) {
        self.taken -= 1;
        self.change(client, |client| client.taken -= 1);
    }

    /// One more stream of a client waits.
    pub(super) fn wait(&mut self, client: u64) {
        self.change(client, |client| client.waiting += 1);
    }

    /// A stream of a client waits no longer.
    pub(super) fn end_wait(&mut self, client: u64) {
        self.change(client, |client| client.waiting -= 1);
    }

    /// The client whose stream may begin next.
    pub(super) fn next(&self) -> Option<u64> {
        self.order.first().filter(|(has, ..)| self.may_take(*has)).map(|(.., client)| *client)
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Client)) {
        let client = self.clients.entry(number).or_default();
        let (had, turn) = (client.taken, client.turn.take());
        if let Some(turn) = &turn {
            self.order.remove(turn);
        }
        change(client);
        if client.waiting > 0 {
            // Who has got a place lines up behind those that have as many.
            let since = turn.filter(|_| client.taken <= had).map_or(self.turns, |(_, since, _)| since);
            self.turns += 1;
            let turn = (client.taken, since, number);
            client.turn = Some(turn);
            self.order.insert(turn);
        } else if client.taken == 0 {
            self.clients.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_one_more_place_while_it_has_fewer_than_are_free() {
        let mut places = Places::new(12);
        let mut taken = [1, 2, 3].map(|client| (0..12).take_while(|_| places.take(client)).count());
        assert_eq!(taken, [6, 3, 2]);
        assert!(!places.are_full() && places.take(4) && places.are_full() && !places.take(5));
        for client in [1, 2, 3] {
            while taken[client - 1] > 0 {
                places.leave(client as u64);
                taken[client - 1] -= 1;
            }
        }
        places.leave(4);
        assert_eq!((places.taken, places.clients.len()), (0, 0));
    }

    #[test]
    fn a_server_with_one_place_gives_it() {
        let mut places = Places::new(1);
        assert!(places.take(1) && !places.take(2));
        places.leave(1);
        assert!(places.take(2));
    }

    #[test]
    fn who_has_the_fewest_places_is_next() {
        let mut places = Places::new(6);
        assert!((0..3).all(|_| places.take(1)));
        places.wait(1);
        assert_eq!(places.next(), None, "it has as many as are free");
        (0..2).for_each(|_| places.wait(2));
        places.wait(3);
        let mut begun = Vec::new();
        while let Some(client) = places.next() {
            places.end_wait(client);
            assert!(places.take(client));
            begun.push(client);
        }
        assert_eq!(begun, [2, 3], "one is free, and the second client has one");
        places.leave(1);
        assert_eq!(places.next(), Some(2));
        places.end_wait(2);
        assert_eq!(places.next(), None, "the first has two of six still, and two are free");
        places.leave(3);
        assert_eq!(places.next(), Some(1));
        places.end_wait(1);
        assert!(places.order.is_empty());
    }
}

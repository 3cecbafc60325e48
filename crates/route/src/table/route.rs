//! Where one message goes: groups of endpoints, or the owner of its managed entity.
use crate::sync::{AtomicUsize, Ordering};

/// An endpoint that a table names: an index into [`Table::endpoints`](super::Table::endpoints) of that table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// Where messages of one type and subscription go.
///
/// The node itself is left out of all groups. Where that leaves none, messages have no endpoint.
#[derive(Debug, Default)]
pub struct Route {
    /// Each group gets a copy. None of them is empty.
    pub groups: Vec<Group>,
    /// `%meid`: the message goes to the owner of its managed entity, and there are no groups.
    pub by_entity: bool,
}

/// Endpoints that take turns: each message goes to one of them.
#[derive(Debug, Default)]
pub struct Group {
    /// Who takes turns, in order; who is named twice has two turns in each round.
    pub members: Vec<EndpointId>,
    turn: AtomicUsize,
}

impl Group {
    /// A group whose first member has the first turn.
    pub fn new(members: Vec<EndpointId>) -> Self {
        Self { members, turn: AtomicUsize::new(0) }
    }

    /// Which of the members has its turn, as an index; 0 if there are none. Who calls tries the members from there on, round,
    /// and skips dead ones.
    #[inline]
    pub fn next(&self) -> usize {
        match self.members.len() {
            0 | 1 => 0,
            // Relaxed: the count orders nothing but itself. At its end it begins anew, which costs one round its fairness.
            several => self.turn.fetch_add(1, Ordering::Relaxed) % several,
        }
    }

    /// The same group, where its table's endpoints have other numbers. Its turns go on.
    fn renumbered(&self, numbers: &[Option<EndpointId>]) -> Self {
        // Relaxed: a turn that is taken at this moment in the table before may be taken again in this one.
        Self { members: renumbered(&self.members, numbers), turn: AtomicUsize::new(self.turn.load(Ordering::Relaxed)) }
    }
}

fn renumbered(members: &[EndpointId], numbers: &[Option<EndpointId>]) -> Vec<EndpointId> {
    members.iter().map(|member| numbers[member.0 as usize].expect("all that are named have numbers")).collect()
}

/// What an entry says: its groups as they are written, and what they are for this node.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) route: Route,
    /// The groups with the node itself among them, if they name it.
    written: Option<Vec<Vec<EndpointId>>>,
}

impl Target {
    pub(super) fn by_entity() -> Self {
        Self { route: Route { groups: Vec::new(), by_entity: true }, written: None }
    }

    pub(super) fn groups(written: Vec<Vec<EndpointId>>, is_own: impl Fn(EndpointId) -> bool) -> Self {
        let names_own = written.iter().flatten().any(|&member| is_own(member));
        let others = |members: &Vec<EndpointId>| members.iter().copied().filter(|&member| !is_own(member)).collect();
        let (kept, written) = if names_own {
            (written.iter().map(others).filter(|members: &Vec<_>| !members.is_empty()).collect(), Some(written))
        } else {
            (written, None)
        };
        Self { route: Route { groups: kept.into_iter().map(Group::new).collect(), by_entity: false }, written }
    }

    /// Whether members of one of its groups take turns.
    pub(super) fn has_turns(&self) -> bool {
        self.route.groups.iter().any(|group| group.members.len() > 1)
    }

    /// The groups as they are written.
    pub(super) fn written(&self) -> impl Iterator<Item = &[EndpointId]> {
        let with_own = self.written.iter().flatten().map(Vec::as_slice);
        let groups = if self.written.is_some() { &[] } else { self.route.groups.as_slice() };
        with_own.chain(groups.iter().map(|group| group.members.as_slice()))
    }

    /// The same, where the table's endpoints have other numbers. Turns go on.
    pub(super) fn renumbered(&self, numbers: &[Option<EndpointId>]) -> Self {
        let groups = self.route.groups.iter().map(|group| group.renumbered(numbers)).collect();
        let written = |groups: &Vec<Vec<_>>| groups.iter().map(|members| renumbered(members, numbers)).collect();
        Self { route: Route { groups, by_entity: self.route.by_entity }, written: self.written.as_ref().map(written) }
    }
}

/// Whose turn it is makes no difference.
impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.route.by_entity == other.route.by_entity && self.written().eq(other.written())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u32]) -> Vec<EndpointId> {
        numbers.iter().copied().map(EndpointId).collect()
    }

    #[test]
    fn members_take_turns() {
        let group = Group::new(ids(&[7, 8, 9]));
        assert_eq!((0..7).map(|_| group.next()).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(Group::new(ids(&[7])).next(), 0);
        assert_eq!(Group::default().next(), 0);
    }

    #[test]
    fn turns_are_fair_among_threads() {
        const THREADS: usize = 4;
        for members in [2, 3, 7] {
            let group = Group::new(ids(&(0..members).collect::<Vec<_>>()));
            let sends = 10_007; // of each thread; no multiple of the members
            let mut turns = vec![0_usize; members as usize];
            std::thread::scope(|scope| {
                let count = || {
                    let mut turns = vec![0_usize; members as usize];
                    (0..sends).for_each(|_| turns[group.next()] += 1);
                    turns
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
                for thread in threads {
                    let of_one = thread.join().expect("it counts");
                    turns.iter_mut().zip(of_one).for_each(|(all, one)| *all += one);
                }
            });
            let share = THREADS * sends / members as usize;
            assert_eq!(turns.iter().sum::<usize>(), THREADS * sends);
            assert!(turns.iter().all(|&turn| turn == share || turn == share + 1), "{turns:?}");
        }
    }

    #[test]
    fn the_node_itself_is_left_out() {
        let target = Target::groups(vec![ids(&[1, 2]), ids(&[1]), ids(&[3])], |member| member.0 == 1);
        let kept: Vec<_> = target.route.groups.iter().map(|group| group.members.clone()).collect();
        assert_eq!(kept, [ids(&[2]), ids(&[3])]);
        assert_eq!(target.written().collect::<Vec<_>>(), [&ids(&[1, 2])[..], &ids(&[1]), &ids(&[3])]);
        let alone = Target::groups(vec![ids(&[1])], |_| true);
        assert!(alone.route.groups.is_empty());
        assert_eq!(alone.written().count(), 1);
    }

    #[test]
    fn turns_go_on_under_other_numbers() {
        let target = Target::groups(vec![ids(&[2, 4])], |_| false);
        target.route.groups[0].next();
        let numbers = [None, None, Some(EndpointId(1)), None, Some(EndpointId(0))];
        let renumbered = target.renumbered(&numbers);
        assert_eq!(renumbered.route.groups[0].members, ids(&[1, 0]));
        assert_eq!(renumbered.route.groups[0].next(), 1);
    }
}

//! A table while it is read, from whichever form: entries come and go, and the last valid one stays.
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::contents::{Stored, Table, key};
use super::limits::{MAX_ENDPOINTS, MAX_ENTITIES, MAX_ENTRIES, MAX_MEMBERS};
use super::names::{check_endpoint, check_entity, check_id};
use super::pauses::Pauses;
use super::route::{EndpointId, Target};

/// What this node is called, for entries that count for some senders only.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// All its names, as tables write them: `host:port`, with each address and name it has, and its URLs.
    pub names: Vec<String>,
}

/// Errors say what is wrong; where it is, knows who reads.
pub(super) struct Builder<'a> {
    own: HashSet<&'a str>,
    /// The table before, while its entries are not among these: a whole table does without them.
    before: Option<&'a Table>,
    pub(super) id: String,
    pub(super) complete: bool,
    endpoints: Vec<String>,
    numbers: HashMap<String, EndpointId, RandomState>,
    /// In the order in which they came: most tables are written in theirs, and then there is nothing to sort.
    slots: Vec<Slot>,
    /// Where each is, by [`key`].
    places: HashMap<u64, u32, RandomState>,
    entities: HashMap<Box<str>, EndpointId, RandomState>,
    /// How many entries the slots hold.
    entries: usize,
    /// How many have been put in: the order among senders.
    order: u64,
}

/// The entries of one type and subscription. There is at least one.
struct Slot {
    kind: i32,
    subscription: i32,
    for_all: Option<Arc<Target>>,
    /// With the order in which they came. None: the sender has no entry although others have. Most have none, and an empty
    /// tree costs nothing.
    by_sender: BTreeMap<Box<str>, (u64, Option<Arc<Target>>)>,
}

impl<'a> Builder<'a> {
    /// Begins with what a table says.
    pub(super) fn after(before: &'a Table, own: &'a Own) -> Self {
        Self {
            own: own.names.iter().map(String::as_str).collect(),
            before: Some(before),
            id: before.id.clone(),
            complete: before.complete,
            endpoints: before.endpoints.clone(),
            numbers: before.endpoints.iter().cloned().zip((0..).map(EndpointId)).collect(),
            slots: Vec::new(),
            places: HashMap::default(),
            entities: before.entities.clone(),
            entries: 0,
            order: 0,
        }
    }

    /// Forgets all routes: those of a whole table follow. Managed entities stay, as they do in RMR, and their owners are
    /// the only endpoints left: most tables then number theirs as they come, and are not renumbered at their end.
    pub(super) fn begin_anew(&mut self) {
        self.complete = true;
        self.before = None;
        self.slots.clear();
        self.places.clear();
        self.entries = 0;
        self.numbers.clear();
        let names = std::mem::take(&mut self.endpoints);
        for owner in self.entities.values_mut() {
            let name = &names[owner.0 as usize];
            *owner = *self.numbers.entry(name.clone()).or_insert_with(|| {
                self.endpoints.push(name.clone());
                EndpointId(self.endpoints.len() as u32 - 1)
            });
        }
    }

    /// Keeps the routes of the table before, unless they are forgotten: some of them change.
    pub(super) fn keep_routes(&mut self) {
        let Some(before) = self.before.take() else { return };
        for (order, stored) in (0..).zip(&before.entries) {
            let slot = self.slot(stored.kind, stored.subscription);
            match &stored.sender {
                None => slot.for_all.clone_from(&stored.target),
                Some(sender) => slot.set(sender, order, stored.target.clone()),
            }
        }
        self.entries = before.entries.len();
        self.order = before.entries.len() as u64;
    }

    pub(super) fn set_id(&mut self, id: &str) -> Result<(), String> {
        check_id(id)?;
        id.clone_into(&mut self.id);
        Ok(())
    }

    /// The number of an endpoint, which must be one.
    pub(super) fn endpoint(&mut self, name: &str) -> Result<EndpointId, String> {
        if let Some(&id) = self.numbers.get(name) {
            return Ok(id);
        }
        check_endpoint(name)?;
        // Twice as many: those that a table before has named and this one does not are gone at its end.
        if self.endpoints.len() >= 2 * MAX_ENDPOINTS {
            return Err(too_many("endpoints", MAX_ENDPOINTS));
        }
        let id = EndpointId(self.endpoints.len() as u32);
        self.endpoints.push(name.to_owned());
        self.numbers.insert(name.to_owned(), id);
        Ok(id)
    }

    /// What an entry with these groups says.
    pub(super) fn target(&self, groups: Vec<Vec<EndpointId>>) -> Target {
        Target::groups(groups, |member| self.own.contains(self.endpoints[member.0 as usize].as_str()))
    }

    /// Puts an entry in the place of those before: of all, or of those for the senders named.
    pub(super) fn put(
        &mut self,
        kind: i32,
        subscription: i32,
        senders: &[&str],
        target: Arc<Target>,
    ) -> Result<(), String> {
        let mut order = self.order;
        let slot = self.slot(kind, subscription);
        let before = slot.len();
        for &sender in senders {
            slot.set(sender, order, Some(Arc::clone(&target)));
            order += 1;
        }
        if senders.is_empty() {
            slot.for_all = Some(target);
            slot.by_sender.clear();
        }
        let now = slot.len();
        self.order = order;
        self.entries = self.entries - before + now;
        self.check_entries()
    }

    /// Takes an entry out: for all, or for the senders named. That there is none is no error, as in RMR.
    pub(super) fn delete(&mut self, kind: i32, subscription: i32, senders: &[&str]) -> Result<(), String> {
        if senders.is_empty() {
            self.entries -= self.remove(kind, subscription).map_or(0, |slot| slot.len());
            return Ok(());
        }
        let Some(&place) = self.places.get(&key(kind, subscription)) else { return Ok(()) };
        let slot = &mut self.slots[place as usize];
        self.entries -= slot.len();
        // Others have entries, which this sender is not to get: neither that for all, nor, if it goes by several names, that
        // of another name.
        for &sender in senders {
            slot.set(sender, self.order, None);
            self.order += 1;
        }
        self.entries += slot.len();
        self.check_entries()
    }

    /// The entries of a type and subscription, to which one comes.
    fn slot(&mut self, kind: i32, subscription: i32) -> &mut Slot {
        let next = self.slots.len() as u32;
        let place = *self.places.entry(key(kind, subscription)).or_insert(next);
        if place == next {
            self.slots.push(Slot { kind, subscription, for_all: None, by_sender: BTreeMap::new() });
        }
        &mut self.slots[place as usize]
    }

    /// Takes all entries of a type and subscription out. The last ones come into their place.
    fn remove(&mut self, kind: i32, subscription: i32) -> Option<Slot> {
        let place = self.places.remove(&key(kind, subscription))?;
        let removed = self.slots.swap_remove(place as usize);
        if let Some(moved) = self.slots.get(place as usize) {
            self.places.insert(key(moved.kind, moved.subscription), place);
        }
        Some(removed)
    }

    fn check_entries(&self) -> Result<(), String> {
        if self.entries > MAX_ENTRIES { Err(too_many("entries", MAX_ENTRIES)) } else { Ok(()) }
    }

    /// Says whose a managed entity is; whose it was before. The last word counts.
    pub(super) fn own_entity(&mut self, entity: &str, owner: EndpointId) -> Result<Option<EndpointId>, String> {
        check_entity(entity)?;
        let before = self.entities.insert(entity.into(), owner);
        if self.entities.len() > MAX_ENTITIES {
            return Err(too_many("managed entities", MAX_ENTITIES));
        }
        Ok(before)
    }

    pub(super) fn disown_entity(&mut self, entity: &str) -> Result<(), String> {
        check_entity(entity)?;
        self.entities.remove(entity);
        Ok(())
    }

    /// The table.
    pub(super) fn finish(mut self) -> Result<Table, String> {
        self.keep_routes();
        let mut pauses = Pauses::default();
        let entries = in_order(self.slots, &self.own, &mut pauses);
        let mut table = Table {
            id: self.id,
            complete: self.complete,
            endpoints: self.endpoints,
            entries,
            routes: HashMap::default(),
            entities: self.entities,
        };
        number_endpoints(&mut table)?;
        // After the endpoints have their numbers: entries and routes share what they say.
        table.routes.reserve(self.places.len());
        for stored in table.entries.iter().filter(|stored| stored.in_force) {
            pauses.one_done();
            if let Some(target) = &stored.target {
                table.routes.insert(key(stored.kind, stored.subscription), Arc::clone(target));
            }
        }
        Ok(table)
    }
}

impl Slot {
    fn len(&self) -> usize {
        usize::from(self.for_all.is_some()) + self.by_sender.len()
    }

    fn set(&mut self, sender: &str, order: u64, target: Option<Arc<Target>>) {
        self.by_sender.insert(sender.into(), (order, target));
    }
}

fn too_many(what: &str, most: usize) -> String {
    format!("the table has too many {what}: it may have {most}")
}

/// All entries in the order of [`Table::entries`], and which of them are in force for a node with these names.
fn in_order(mut slots: Vec<Slot>, own: &HashSet<&str>, pauses: &mut Pauses) -> Vec<Stored> {
    slots.sort_unstable_by_key(|slot| (slot.kind, slot.subscription));
    let mut entries = Vec::with_capacity(slots.iter().map(Slot::len).sum());
    for slot in slots {
        pauses.one_done();
        let (kind, subscription) = (slot.kind, slot.subscription);
        let stored = |sender, target| Stored { kind, subscription, sender, target, in_force: false };
        let first = entries.len();
        let mut winner = slot.for_all.is_some().then_some(first);
        entries.extend(slot.for_all.map(|target| stored(None, Some(target))));
        let mut by_sender: Vec<_> = slot.by_sender.into_iter().collect();
        by_sender.sort_unstable_by_key(|(_, (order, _))| *order);
        for (sender, (_, target)) in by_sender {
            if target.is_none() && entries.len() == first {
                continue; // nothing is before it that it could take away
            }
            if own.contains(&*sender) {
                winner = Some(entries.len());
            }
            entries.push(stored(Some(sender), target));
        }
        if let Some(winner) = winner {
            entries[winner].in_force = true;
        }
    }
    entries
}

/// Leaves out the endpoints that nothing names any more, and numbers the others as they come: equal tables have equal numbers.
fn number_endpoints(table: &mut Table) -> Result<(), String> {
    let mut numbers = vec![None; table.endpoints.len()];
    let mut order = Vec::with_capacity(table.endpoints.len());
    let mut meet = |id: EndpointId| {
        numbers[id.0 as usize].get_or_insert_with(|| {
            order.push(id);
            EndpointId(order.len() as u32 - 1)
        });
    };
    let (mut members, mut last) = (0, None::<(&Arc<Target>, usize)>);
    for target in table.entries.iter().filter_map(|stored| stored.target.as_ref()) {
        // Neighbours often share what they say.
        let len = match last {
            Some((same, len)) if Arc::ptr_eq(same, target) => len,
            _ => target.written().flatten().map(|&member| meet(member)).count(),
        };
        last = Some((target, len));
        members += len;
        if members > MAX_MEMBERS {
            return Err(too_many("members of groups, all together", MAX_MEMBERS));
        }
    }
    table.entities().for_each(|(_, owner)| meet(owner));
    if order.len() > MAX_ENDPOINTS {
        return Err(too_many("endpoints", MAX_ENDPOINTS));
    }
    let as_before =
        order.len() == table.endpoints.len() && (0..).map(EndpointId).zip(&order).all(|(new, &old)| new == old);
    if as_before {
        return Ok(());
    }

    table.endpoints = order.iter().map(|id| std::mem::take(&mut table.endpoints[id.0 as usize])).collect();
    for owner in table.entities.values_mut() {
        *owner = numbers[owner.0 as usize].expect("all that are named have numbers");
    }
    // Entries of one record share what they say, and are neighbours.
    let mut last: Option<(Arc<Target>, Arc<Target>)> = None;
    for target in table.entries.iter_mut().filter_map(|stored| stored.target.as_mut()) {
        let renumbered = match &last {
            Some((old, new)) if Arc::ptr_eq(old, target) => Arc::clone(new),
            _ => Arc::new(target.renumbered(&numbers)),
        };
        last = Some((std::mem::replace(target, Arc::clone(&renumbered)), renumbered));
    }
    Ok(())
}

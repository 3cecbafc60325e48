//! A table as it is once it has been read: what is looked up, and how.
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::route::{EndpointId, Route, Target};

/// The subscription that stands for all that have no entry of their own, and for messages without one.
pub const ANY_SUBSCRIPTION: i32 = -1;

/// Who gets which messages. It has been checked as a whole and does not change: a new one takes its place.
///
/// Two tables are equal if they say the same, whoever has the next turn in them.
#[derive(Debug, Default, PartialEq)]
pub struct Table {
    pub(super) id: String,
    pub(super) complete: bool,
    pub(super) endpoints: Vec<String>,
    /// By type and subscription. Within one the entry for all senders is the first, and of the others the last that names
    /// this node is in force.
    pub(super) entries: Vec<Stored>,
    /// What is in force here, by [`key`]. The hasher has seeds of its own in every process: a table cannot be made to
    /// collide by somebody who does not see its times. The standard library's takes four times as long.
    pub(super) routes: HashMap<u64, Arc<Target>, RandomState>,
    /// Managed entities, and whose they are.
    pub(super) entities: HashMap<Box<str>, EndpointId, RandomState>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Stored {
    pub(super) kind: i32,
    pub(super) subscription: i32,
    pub(super) sender: Option<Box<str>>,
    /// None: the sender has no entry of this type and subscription, although others have (`del`).
    pub(super) target: Option<Arc<Target>>,
    pub(super) in_force: bool,
}

pub(super) fn key(kind: i32, subscription: i32) -> u64 {
    u64::from(kind.cast_unsigned()) << 32 | u64::from(subscription.cast_unsigned())
}

/// An entry of a table, as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    stored: &'a Stored,
}

impl<'a> Entry<'a> {
    /// The messages' type.
    pub fn kind(&self) -> i32 {
        self.stored.kind
    }

    /// The messages' subscription, or [`ANY_SUBSCRIPTION`].
    pub fn subscription(&self) -> i32 {
        self.stored.subscription
    }

    /// Whose messages it is about, if not everybody's.
    pub fn sender(&self) -> Option<&'a str> {
        self.stored.sender.as_deref()
    }

    /// The groups as they are written, the node itself among their members if it is named.
    pub fn groups(&self) -> impl Iterator<Item = &'a [EndpointId]> + use<'a> {
        self.stored.target.iter().flat_map(|target| target.written())
    }

    /// Where this node sends such messages by this entry. None: the entry is a `del` for one sender, who has none.
    pub fn route(&self) -> Option<&'a Route> {
        self.stored.target.as_ref().map(|target| &target.route)
    }

    /// Whether it is the one that counts for this node, of all with its type and subscription.
    pub fn is_in_force(&self) -> bool {
        self.stored.in_force
    }
}

impl Table {
    /// The table before there is one: it has no routes.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The table's id, or `""`: what the sections that it was read from said last.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether it is a whole table of routes. The empty one is not, nor one that knows managed entities only.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Where a message goes: by its type and subscription, or else by its type alone. A route without groups that is not
    /// `by_entity` leads nowhere.
    #[inline]
    pub fn lookup(&self, kind: i32, subscription: i32) -> Option<&Route> {
        let found = match self.routes.get(&key(kind, subscription)) {
            None if subscription != ANY_SUBSCRIPTION => self.routes.get(&key(kind, ANY_SUBSCRIPTION)),
            found => found,
        };
        found.map(|target| &target.route)
    }

    /// Who owns a managed entity.
    pub fn owner(&self, entity: &str) -> Option<EndpointId> {
        self.entities.get(entity).copied()
    }

    /// All endpoints that entries and managed entities name; an [`EndpointId`] is an index of it. Tables do not share
    /// numbers: compare endpoints of two tables by their names.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// All entries, by type and subscription; those for single senders after the one for all.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries.iter().map(|stored| Entry { stored })
    }

    /// All managed entities by name, with their owners.
    pub fn entities(&self) -> impl Iterator<Item = (&str, EndpointId)> {
        let mut entities: Vec<_> = self.entities.iter().map(|(entity, &owner)| (&**entity, owner)).collect();
        entities.sort_unstable();
        entities.into_iter()
    }
}

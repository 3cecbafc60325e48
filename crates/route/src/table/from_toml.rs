//! The form of a table that people write: TOML.
//!
//! It says what the text of RMR says, but for two things that are mistakes rather in a file: two entries for the same messages, of
//! which the text takes the last, and an entry for all that takes those for single senders away because it comes after them.
use std::collections::HashSet;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::building::{Builder, Own};
use super::contents::{ANY_SUBSCRIPTION, Table};
use super::error::{TableError, did_you_mean, shown};
use super::limits::MAX_TOML;
use super::names::{BY_ENTITY, check_sender};
use super::route::{EndpointId, Target};

const TABLE_KEYS: [&str; 3] = ["id", "route", "entities"];
const ROUTE_KEYS: [&str; 5] = ["type", "subscription", "sender", "to", "copy_to"];

/// What is wrong, and where in the text.
struct Wrong {
    at: usize,
    what: String,
}

impl Wrong {
    fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

/// A `[[route]]`, read but for its endpoints.
struct Written<'t> {
    at: usize,
    kind: i32,
    subscription: i32,
    senders: Vec<&'t str>,
    fields: &'t DeTable<'t>,
}

/// Reads a whole table.
pub(super) fn read(text: &str, own: &Own) -> Result<Table, TableError> {
    if text.len() > MAX_TOML {
        return Err(TableError::new(0, format!("the table has {} bytes, and may have {MAX_TOML} as TOML", text.len())));
    }
    let line_of = |at: usize| 1 + text.get(..at).unwrap_or(text).matches('\n').count();
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(span.start));
        TableError::new(line, format!("this is no TOML: {}", error.message().replace('\n', "; ")))
    })?;
    let empty = Table::empty();
    let mut table = Builder::after(&empty, own);
    table.begin_anew();
    read_document(&mut table, document.get_ref()).map_err(|wrong| TableError::new(line_of(wrong.at), wrong.what))?;
    table.finish().map_err(|what| TableError::new(0, what))
}

fn read_document(table: &mut Builder, document: &DeTable) -> Result<(), Wrong> {
    check_keys(document, &TABLE_KEYS, "a table")?;
    if let Some(id) = document.get("id") {
        let (at, id) = (id.span().start, string(id, "id")?);
        table.set_id(id).map_err(|what| Wrong::new(at, what))?;
    }
    if let Some(routes) = document.get("route") {
        const FORM: &str = "write each route below a line `[[route]]`";
        let written = array(routes, FORM)?.iter();
        let written: Vec<_> = written.map(|route| written_route(route, FORM)).collect::<Result<_, _>>()?;
        check_for_twins(&written)?;
        // Those for single senders last: they go before those for all, wherever they stand.
        let (for_all, by_sender): (Vec<_>, Vec<_>) = written.iter().partition(|route| route.senders.is_empty());
        for route in for_all.into_iter().chain(by_sender) {
            let target = Arc::new(target(table, route)?);
            let put = table.put(route.kind, route.subscription, &route.senders, target);
            put.map_err(|what| Wrong::new(route.at, what))?;
        }
    }
    document.get("entities").map_or(Ok(()), |entities| read_entities(table, entities))
}

fn written_route<'t>(route: &'t Spanned<DeValue<'t>>, form: &str) -> Result<Written<'t>, Wrong> {
    let at = route.span().start;
    let fields = route.get_ref().as_table().ok_or_else(|| Wrong::new(at, form))?;
    check_keys(fields, &ROUTE_KEYS, "a route")?;
    let kind = fields.get("type").ok_or_else(|| Wrong::new(at, "the route lacks a `type`: the messages' number"))?;
    let subscription = fields
        .get("subscription")
        .map_or(Ok(ANY_SUBSCRIPTION), |subscription| integer(subscription, "subscription"))?;
    let senders = fields.get("sender").map_or(Ok(Vec::new()), |senders| strings(senders, "sender"))?;
    for (sender, place) in &senders {
        check_sender(sender).map_err(|what| Wrong::new(*place, what))?;
    }
    Ok(Written {
        at,
        kind: integer(kind, "type")?,
        subscription,
        senders: senders.into_iter().map(|(sender, _)| sender).collect(),
        fields,
    })
}

/// Refuses two entries for the same messages of the same sender.
fn check_for_twins<'t>(written: &[Written<'t>]) -> Result<(), Wrong> {
    let mut seen = HashSet::new();
    for route in written {
        let mut check = |sender: Option<&'t str>| {
            if seen.insert((route.kind, route.subscription, sender)) {
                return Ok(());
            }
            let of = sender.map_or_else(String::new, |sender| format!(" of {}", shown(sender)));
            Err(Wrong::new(
                route.at,
                format!(
                    "messages{of} of type {} and subscription {} have a route already: \
                     write more endpoints into that one, with `to` or `copy_to`",
                    route.kind, route.subscription
                ),
            ))
        };
        match route.senders.as_slice() {
            [] => check(None)?,
            senders => senders.iter().try_for_each(|sender| check(Some(sender)))?,
        }
    }
    Ok(())
}

fn target(table: &mut Builder, route: &Written) -> Result<Target, Wrong> {
    let to = route.fields.get("to").ok_or_else(|| {
        Wrong::new(route.at, "the route lacks `to`: an endpoint, or a list of endpoints that take turns")
    })?;
    let copies = route.fields.get("copy_to");
    if to.get_ref().as_str() == Some(BY_ENTITY) {
        return match copies {
            None => Ok(Target::by_entity()),
            Some(copies) => {
                let what =
                    format!("`copy_to` cannot stand beside `to = \"{BY_ENTITY}\"`: such messages go to one owner");
                Err(Wrong::new(copies.span().start, what))
            }
        };
    }
    let mut groups = vec![group(table, to, "to")?];
    if let Some(copies) = copies {
        let form =
            "`copy_to` is a list: each item gets a copy, and is an endpoint or a list of endpoints that take turns";
        for copy in array(copies, form)? {
            groups.push(group(table, copy, "an item of copy_to")?);
        }
    }
    Ok(table.target(groups))
}

/// An endpoint, or a list of endpoints that take turns.
fn group(table: &mut Builder, written: &Spanned<DeValue>, what: &str) -> Result<Vec<EndpointId>, Wrong> {
    let members = strings(written, what)?;
    members.into_iter().map(|(member, at)| table.endpoint(member).map_err(|what| Wrong::new(at, what))).collect()
}

fn read_entities(table: &mut Builder, entities: &Spanned<DeValue>) -> Result<(), Wrong> {
    const FORM: &str = "below `[entities]` write `\"endpoint\" = [\"meid\", …]`";
    let owners = entities.get_ref().as_table().ok_or_else(|| Wrong::new(entities.span().start, FORM))?;
    for (owner, entities) in owners {
        let id = table.endpoint(owner.get_ref()).map_err(|what| Wrong::new(owner.span().start, what))?;
        for (entity, at) in strings(entities, "what an endpoint owns")? {
            let before = table.own_entity(entity, id).map_err(|what| Wrong::new(at, what))?;
            if before.is_some() {
                return Err(Wrong::new(
                    at,
                    format!("the managed entity {} is named twice: it has one owner", shown(entity)),
                ));
            }
        }
    }
    Ok(())
}

fn check_keys(table: &DeTable, known: &[&str], of: &str) -> Result<(), Wrong> {
    match table.keys().find(|key| !known.contains(&&**key.get_ref())) {
        None => Ok(()),
        Some(key) => {
            let (name, known_names) = (key.get_ref(), known.join("`, `"));
            let what =
                format!("{} is no key of {of}: there are `{known_names}`{}", shown(name), did_you_mean(name, known));
            Err(Wrong::new(key.span().start, what))
        }
    }
}

fn wrong_kind(value: &Spanned<DeValue>, name: &str, expected: &str) -> Wrong {
    let found = value.get_ref().type_str();
    Wrong::new(value.span().start, format!("{} is {expected}, and this is of TOML's type {found}", shown(name)))
}

fn string<'t>(value: &'t Spanned<DeValue<'t>>, name: &str) -> Result<&'t str, Wrong> {
    value.get_ref().as_str().ok_or_else(|| wrong_kind(value, name, "a string in quotes"))
}

/// A string, or a list of at least one; with the place of each.
fn strings<'t>(value: &'t Spanned<DeValue<'t>>, name: &str) -> Result<Vec<(&'t str, usize)>, Wrong> {
    const EXPECTED: &str = "a string in quotes or a list of such";
    let place_and_text = |value: &'t Spanned<DeValue<'t>>| {
        let text = value.get_ref().as_str().ok_or_else(|| wrong_kind(value, name, EXPECTED))?;
        Ok((text, value.span().start))
    };
    match value.get_ref().as_array() {
        None => Ok(vec![place_and_text(value)?]),
        Some(list) if list.is_empty() => {
            Err(Wrong::new(value.span().start, format!("{} is an empty list: name at least one", shown(name))))
        }
        Some(list) => list.iter().map(place_and_text).collect(),
    }
}

fn integer(value: &Spanned<DeValue>, name: &str) -> Result<i32, Wrong> {
    let number = value.get_ref().as_integer().ok_or_else(|| wrong_kind(value, name, "a number without quotes"))?;
    i32::from_str_radix(number.as_str(), number.radix()).map_err(|_| {
        let what = format!("{} is a number from {} to {}", shown(name), i32::MIN, i32::MAX);
        Wrong::new(value.span().start, what)
    })
}

fn array<'t>(value: &'t Spanned<DeValue<'t>>, form: &str) -> Result<&'t toml::de::DeArray<'t>, Wrong> {
    value.get_ref().as_array().ok_or_else(|| Wrong::new(value.span().start, form))
}

//! A table as RMR's text again, for who pushes it to others: RMR can read it, too.
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::contents::{Stored, Table};
use super::names::BY_ENTITY;
use super::route::EndpointId;

/// Managed entities of one record. RMR takes 128.
const ENTITIES: usize = 100;

/// The sections that make this table of the empty one.
pub(super) fn write(table: &Table) -> String {
    let mut text = String::new();
    if table.complete {
        start(&mut text, "newrt", &table.id);
        // What one record said of several senders is written as one again.
        let of_one_record = |one: &Stored, next: &Stored| {
            let same = |(one, next)| Arc::ptr_eq(one, next);
            let are_of_senders = one.sender.is_some() && next.sender.is_some();
            let place = |stored: &Stored| (stored.kind, stored.subscription);
            are_of_senders
                && place(one) == place(next)
                && one.target.as_ref().zip(next.target.as_ref()).is_some_and(same)
        };
        let mut records = 0;
        for stored in table.entries.chunk_by(of_one_record) {
            entry(&mut text, table, stored);
            records += 1;
        }
        end(&mut text, "newrt", records);
    }
    if !table.entities.is_empty() {
        start(&mut text, "meid_map", &table.id);
        let mut by_owner = BTreeMap::<EndpointId, Vec<&str>>::new();
        table.entities().for_each(|(entity, owner)| by_owner.entry(owner).or_default().push(entity));
        let mut records = 0;
        for (owner, entities) in by_owner {
            for some in entities.chunks(ENTITIES) {
                let _ = writeln!(text, "mme_ar|{}|{}", table.endpoints[owner.0 as usize], some.join(" "));
                records += 1;
            }
        }
        end(&mut text, "meid_map", records);
    }
    text
}

fn start(text: &mut String, name: &str, id: &str) {
    // A String takes whatever is written to it.
    let _ = if id.is_empty() { writeln!(text, "{name}|start") } else { writeln!(text, "{name}|start|{id}") };
}

fn end(text: &mut String, name: &str, records: usize) {
    let _ = writeln!(text, "{name}|end|{records}");
}

/// One record. No blanks within fields: RMR would take them for part of a name.
fn entry(text: &mut String, table: &Table, stored: &[Stored]) {
    let Stored { kind, subscription, target, .. } = &stored[0];
    let _ = write!(text, "{}|{kind}", if target.is_some() { "mse" } else { "del" });
    for sender in stored.iter().filter_map(|stored| stored.sender.as_deref()) {
        let _ = write!(text, ",{sender}");
    }
    let _ = write!(text, "|{subscription}");
    if let Some(target) = target {
        text.push('|');
        if target.route.by_entity {
            text.push_str(BY_ENTITY);
        }
        for (number, group) in target.written().enumerate() {
            let names: Vec<_> = group.iter().map(|member| table.endpoints[member.0 as usize].as_str()).collect();
            let _ = write!(text, "{}{}", if number > 0 { ";" } else { "" }, names.join(","));
        }
    }
    text.push('\n');
}

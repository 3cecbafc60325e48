//! What holds of all tables: that their text says the same, and that lookups follow the rules, told in the plainest words.
#![allow(missing_docs, reason = "its tests say what they are")]

mod common;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use common::{check_round_trip, own, to};
use nearcall_route::table::Table;
use proptest::collection::vec;
use proptest::prelude::*;

/// A record: whether it deletes, type, subscription, senders and groups.
type Record = (bool, i32, i32, Vec<&'static str>, String);

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a:1", "b:1", "c:1", "shm://d", "[::1]:5"])
}

fn record() -> impl Strategy<Value = Record> {
    let groups = vec(vec(name(), 1..4), 1..4)
        .prop_map(|groups| groups.iter().map(|group| group.join(",")).collect::<Vec<_>>().join(";"));
    let target = prop_oneof![5 => groups, 1 => Just("%meid".to_owned())];
    (prop::bool::weighted(0.2), 0..3, -1..2, vec(name(), 0..3), target)
}

fn text(records: &[Record], section: &str) -> String {
    let mut text = format!("{section} | start\n");
    for (deletes, kind, subscription, senders, groups) in records {
        let senders = senders.iter().flat_map(|sender| [", ", sender]).collect::<String>();
        let _ = if *deletes {
            writeln!(text, "del | {kind}{senders} | {subscription}")
        } else {
            writeln!(text, "mse | {kind}{senders} | {subscription} | {groups}")
        };
    }
    text + &format!("{section} | end | {}\n", records.len())
}

/// As the rules say it: of the records that are valid here, the last one for a type and subscription counts.
fn expected(records: &[Record], names: &[&str], kind: i32, subscription: i32) -> String {
    let mut routes = BTreeMap::new();
    for (deletes, kind, subscription, senders, groups) in records {
        if senders.is_empty() || senders.iter().any(|sender| names.contains(sender)) {
            if *deletes {
                routes.remove(&(*kind, *subscription));
            } else {
                routes.insert((*kind, *subscription), groups);
            }
        }
    }
    let Some(groups) = routes.get(&(kind, subscription)).or_else(|| routes.get(&(kind, -1))) else {
        return "-".to_owned();
    };
    let others = |group: &str| group.split(',').filter(|member| !names.contains(member)).collect::<Vec<_>>().join(",");
    let groups = groups.split(';').map(others).filter(|group| !group.is_empty()).collect::<Vec<_>>().join(";");
    if groups.is_empty() { "nowhere".to_owned() } else { groups }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lookups_follow_the_rules(
        first in vec(record(), 0..12), update in vec(record(), 0..6), names in vec(name(), 0..3),
    ) {
        let own = own(&names);
        let before = Table::parse_text(&text(&first, "newrt"), &own, &Table::empty()).expect("a table");
        let table = Table::parse_text(&text(&update, "updatert"), &own, &before).expect("an update");
        let all = [first.clone(), update].concat();
        for kind in 0..3 {
            for subscription in -1..3 {
                prop_assert_eq!(to(&before, kind, subscription), expected(&first, &names, kind, subscription));
                prop_assert_eq!(to(&table, kind, subscription), expected(&all, &names, kind, subscription));
            }
        }
        check_round_trip(&before, &own);
        check_round_trip(&table, &own);
    }

    #[test]
    fn a_pushed_table_is_the_same_for_everybody(records in vec(record(), 0..12), names in vec(name(), 0..3)) {
        let text = text(&records, "newrt");
        let of_manager = Table::parse_text(&text, &own(&[]), &Table::empty()).expect("a table");
        let pushed = Table::parse_text(&of_manager.to_text(), &own(&names), &Table::empty()).expect("its text");
        let read = Table::parse_text(&text, &own(&names), &Table::empty()).expect("a table");
        prop_assert_eq!(pushed, read);
    }
}

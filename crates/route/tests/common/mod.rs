//! What the tests of tables have in common.
#![allow(dead_code, reason = "no test uses all of it")]

use nearcall_route::table::{Own, Route, Table};

pub(crate) fn own(names: &[&str]) -> Own {
    Own { names: names.iter().map(|&name| name.to_owned()).collect() }
}

/// Reads a text of lines on top of the empty table, for a node without a name.
pub(crate) fn parse(lines: &[&str]) -> Table {
    parse_after(lines, &own(&[]), &Table::empty())
}

pub(crate) fn parse_as(lines: &[&str], names: &[&str]) -> Table {
    parse_after(lines, &own(names), &Table::empty())
}

pub(crate) fn parse_after(lines: &[&str], own: &Own, before: &Table) -> Table {
    Table::parse_text(&text(lines), own, before).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn text(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| [*line, "\n"]).collect()
}

/// What is made of each number, one after the other.
pub(crate) fn repeated(numbers: impl Iterator<Item = usize>, made_of: impl FnMut(usize) -> String) -> String {
    numbers.map(made_of).collect::<Vec<_>>().concat()
}

/// Where a message goes, as the text writes it; `-` if nothing says so, and `nowhere` if something does.
pub(crate) fn to(table: &Table, kind: i32, subscription: i32) -> String {
    table.lookup(kind, subscription).map_or("-".to_owned(), |route| shown(table, route))
}

fn shown(table: &Table, route: &Route) -> String {
    if route.by_entity {
        assert!(route.groups.is_empty());
        return "%meid".to_owned();
    }
    if route.groups.is_empty() {
        return "nowhere".to_owned();
    }
    let name = |&member: &nearcall_route::table::EndpointId| table.endpoints()[member.0 as usize].as_str();
    let group = |group: &nearcall_route::table::Group| group.members.iter().map(name).collect::<Vec<_>>().join(",");
    route.groups.iter().map(group).collect::<Vec<_>>().join(";")
}

pub(crate) fn owner<'t>(table: &'t Table, entity: &str) -> Option<&'t str> {
    table.owner(entity).map(|owner| table.endpoints()[owner.0 as usize].as_str())
}

/// Checks that the table as text is the same table.
pub(crate) fn check_round_trip(table: &Table, own: &Own) {
    let text = table.to_text();
    let again = Table::parse_text(&text, own, &Table::empty()).unwrap_or_else(|error| panic!("{error} in\n{text}"));
    assert_eq!(&again, table, "{text}");
    assert_eq!(again.to_text(), text);
}

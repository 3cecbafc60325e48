//! A routing table that somebody pushes: whatever comes of it is whole, and says the same once it is written again.
use nearcall_route::table::{Own, Table, TableError, id_of_text};

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(input: &[u8]) {
    let [shape, input @ ..] = input else { return };
    let Ok(text) = std::str::from_utf8(input) else { return };
    let names: &[&str] = if shape & 1 == 0 { &[] } else { &["a:1", "shm://b"] };
    let own = Own { names: names.iter().map(|&name| name.to_owned()).collect() };
    match shape >> 1 & 3 {
        0 => look(Table::parse_text(text, &own, &Table::empty()), text, &own),
        1 => look(Table::parse_toml(text, &own), text, &own),
        // What is before stays as it is, whatever comes of the text.
        _ => {
            let before = "newrt|start|before\nrte|1|a:1,c:1\nmse|1,a:1|2|shm://b\nrte|2|%meid\nnewrt|end\n\
                          meid_map|start\nmme_ar|d:1|m n\nmeid_map|end\n";
            let before = Table::parse_text(before, &own, &Table::empty()).expect("a table");
            let written = before.to_text();
            look(Table::parse_text(text, &own, &before), text, &own);
            assert_eq!(before.to_text(), written);
        }
    }
    assert!(text.contains(id_of_text(text)));
}

fn look(read: Result<Table, TableError>, text: &str, own: &Own) {
    let table = match read {
        Ok(table) => table,
        Err(TableError { line, what }) => {
            assert!(!what.is_empty() && !what.contains(['\n', '\r']), "{what:?}");
            assert!(line <= text.matches(['\n', '\r']).count() + 1, "line {line}");
            return;
        }
    };
    let names = table.endpoints().len();
    for entry in table.entries() {
        assert!(entry.groups().flatten().all(|member| (member.0 as usize) < names));
        assert!(entry.groups().all(|group| !group.is_empty()));
        if !entry.is_in_force() {
            continue;
        }
        let found = table.lookup(entry.kind(), entry.subscription());
        let Some(route) = entry.route() else {
            assert!(entry.sender().is_some());
            continue;
        };
        assert!(std::ptr::eq(found.expect("it is in force"), route));
        assert!(!route.by_entity || route.groups.is_empty());
        for group in &route.groups {
            assert!(group.next() < group.members.len());
            assert!(group.members.iter().all(|member| !own.names.contains(&table.endpoints()[member.0 as usize])));
        }
    }
    for (entity, owner) in table.entities() {
        assert!((owner.0 as usize) < names);
        assert_eq!(table.owner(entity), Some(owner));
    }
    if table != Table::empty() {
        let text = table.to_text();
        let again = Table::parse_text(&text, own, &Table::empty()).expect("its own text");
        assert_eq!(again, table, "{text}");
    }
}

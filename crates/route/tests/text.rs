//! Tables in RMR's text, rule by rule. What is refused is in `wrong_tables.rs`.

mod common;
use common::{check_round_trip, own, owner, parse, parse_after, parse_as, text, to};
use nearcall_route::table::{ANY_SUBSCRIPTION, Table, id_of_text};

#[test]
fn the_empty_table_has_no_routes() {
    let table = Table::empty();
    assert_eq!((table.id(), table.is_complete(), to(&table, 1, -1).as_str()), ("", false, "-"));
    assert_eq!((table.endpoints().len(), table.entries().count(), owner(&table, "meid")), (0, 0, None));
}

#[test]
fn a_message_goes_by_type_and_subscription_then_by_type() {
    let table = parse(&[
        "newrt | start | rt-1",
        "rte | 2000 | logger:30311",
        "mse | 1000 | 10 | forwarder:43086",
        "mse | 1000 | -1 | app0:43086,app1:43086; logger:20311",
        "newrt | end | 3",
    ]);
    assert_eq!((table.id(), table.is_complete()), ("rt-1", true));
    assert_eq!(to(&table, 1000, 10), "forwarder:43086");
    assert_eq!(to(&table, 1000, 11), "app0:43086,app1:43086;logger:20311");
    assert_eq!(to(&table, 1000, ANY_SUBSCRIPTION), "app0:43086,app1:43086;logger:20311");
    assert_eq!(to(&table, 2000, 10), "logger:30311");
    assert_eq!(to(&table, 3000, 10), "-");
    assert_eq!(
        table.endpoints(),
        ["app0:43086", "app1:43086", "logger:20311", "forwarder:43086", "logger:30311"],
        "in the order of the entries"
    );
}

#[test]
fn an_entry_for_one_subscription_is_none_for_messages_without_any() {
    let table = parse(&["newrt | start", "mse | 1 | 5 | a:1", "newrt | end"]);
    assert_eq!([5, 6, -1].map(|subscription| to(&table, 1, subscription)), ["a:1", "-", "-"]);
}

#[test]
fn numbers_may_be_all_that_messages_can_have() {
    let table = parse(&[
        "newrt | start",
        "mse | -2147483648 | 2147483647 | a:1",
        "mse | -1 | -2 | b:1",
        "mse | +7 | 007 | c:1",
        "newrt | end",
    ]);
    assert_eq!(to(&table, i32::MIN, i32::MAX), "a:1");
    assert_eq!(to(&table, -1, -2), "b:1");
    assert_eq!(to(&table, 7, 7), "c:1");
    assert_eq!(to(&table, -2, -1), "-", "type and subscription are not mixed up");
    check_round_trip(&table, &own(&[]));
}

#[test]
fn blanks_comments_and_empty_lines_say_nothing() {
    let table = parse(&[
        "# a table",
        "",
        " \t newrt|start \t|\t an id  # and a comment | with a field",
        "  # mse | 1 | -1 | never:1",
        "mse|1|-1|a:1,\tb:1 ;c:1\t# the end",
        "#",
        "newrt|end|1",
    ]);
    assert_eq!(table.id(), "an id");
    assert_eq!(to(&table, 1, -1), "a:1,b:1;c:1");
}

#[test]
fn a_hash_within_a_word_is_no_comment() {
    let table = parse(&["newrt|start|a#b", "mse|1|-1|unix:///run/x#1", "newrt|end"]);
    assert_eq!((table.id(), to(&table, 1, -1).as_str()), ("a#b", "unix:///run/x#1"));
    check_round_trip(&table, &own(&[]));
}

#[test]
fn records_end_with_lf_crlf_or_cr() {
    let expected = parse(&["newrt|start", "mse|1|-1|a:1", "newrt|end|1"]);
    for end in ["\n", "\r\n", "\r", "\n\n", "\r\r\n"] {
        let text = ["newrt|start", "mse|1|-1|a:1", "newrt|end|1", ""].join(end);
        let table = Table::parse_text(&text, &own(&[]), &Table::empty());
        assert_eq!(table.as_ref(), Ok(&expected), "{end:?}");
    }
}

#[test]
fn lines_are_counted_over_all_ends() {
    let text = "newrt|start\r\n\r\rmse|1|-1|a:1\n\nwrong\n";
    let error = Table::parse_text(text, &own(&[]), &Table::empty()).expect_err("a wrong record");
    assert_eq!(error.line, 6);
}

#[test]
fn begin_is_start() {
    assert_eq!(parse(&["newrt | begin | x", "newrt | end"]).id(), "x");
}

#[test]
fn the_count_may_be_left_out() {
    let table = parse(&["newrt | start", "rte | 1 | a:1", "newrt | end"]);
    assert_eq!(to(&table, 1, -1), "a:1");
}

#[test]
fn the_count_counts_records_that_are_for_others_or_replaced_too() {
    let table = parse(&[
        "newrt | start",
        "rte | 1 | a:1",
        "rte | 1 | b:1",
        "rte | 2,other:1 | c:1",
        "del | 7 | -1",
        "newrt | end | 4",
    ]);
    assert_eq!(to(&table, 1, -1), "b:1");
}

#[test]
fn the_last_entry_wins() {
    let table = parse(&["newrt|start", "mse|1|-1|a:1", "rte|1|b:1", "newrt|end|2"]);
    assert_eq!((to(&table, 1, -1).as_str(), table.entries().count()), ("b:1", 1));
    assert_eq!(table.endpoints(), ["b:1"], "what is named no more is no endpoint");
}

#[test]
fn rte_may_have_a_subscription_at_its_end() {
    let table = parse(&["newrt|start", "rte|1|a:1|7", "rte|1|b:1", "newrt|end|2"]);
    assert_eq!([7, 8].map(|subscription| to(&table, 1, subscription)), ["a:1", "b:1"]);
}

#[test]
fn an_empty_field_at_the_end_is_none() {
    let lines = [
        "newrt|start|",
        "mse|1|-1|a:1|",
        "rte|2|b:1|3|",
        "del|9|-1|",
        "newrt|end",
        "meid_map|start|x|",
        "mme_ar|c:1|one|",
        "mme_del|two|",
        "meid_map|end|2",
    ];
    let table = parse(&lines);
    assert_eq!((to(&table, 1, -1).as_str(), to(&table, 2, 3).as_str()), ("a:1", "b:1"));
    assert_eq!((table.id(), owner(&table, "one")), ("x", Some("c:1")));
}

#[test]
fn entries_for_a_sender_count_for_that_one() {
    let lines = [
        "newrt | start",
        "mse | 1000 | 10 | forwarder:43086",
        "mse | 1000,forwarder:43086, second:1 | 10 | app2:43086",
        "mse | 2000,shm://filter | -1 | app3:43086",
        "newrt | end | 3",
    ];
    assert_eq!(to(&parse(&lines), 1000, 10), "forwarder:43086");
    assert_eq!(to(&parse_as(&lines, &["10.0.0.1:1", "forwarder:43086"]), 1000, 10), "app2:43086");
    assert_eq!(to(&parse_as(&lines, &["second:1"]), 1000, 10), "app2:43086");
    assert_eq!(to(&parse_as(&lines, &["shm://filter"]), 2000, -1), "app3:43086");
    assert_eq!(to(&parse(&lines), 2000, -1), "-");

    let table = parse_as(&lines, &["second:1"]);
    let entries: Vec<_> = table.entries().map(|entry| (entry.kind(), entry.sender(), entry.is_in_force())).collect();
    assert_eq!(
        entries,
        [
            (1000, None, false),
            (1000, Some("forwarder:43086"), false),
            (1000, Some("second:1"), true),
            (2000, Some("shm://filter"), false)
        ]
    );
}

#[test]
fn an_entry_for_all_takes_those_for_senders_before_it_away() {
    let table = parse_as(&["newrt|start", "rte|1,a:1|b:1", "rte|1|c:1", "newrt|end"], &["a:1"]);
    assert_eq!((to(&table, 1, -1).as_str(), table.entries().count()), ("c:1", 1));
}

#[test]
fn of_entries_for_several_names_of_a_node_the_last_wins() {
    for (lines, expected) in [(["rte|1,a:1|x:1", "rte|1,b:1|y:1"], "y:1"), (["rte|1,b:1|y:1", "rte|1,a:1|x:1"], "x:1")]
    {
        let table = parse_as(&["newrt|start", lines[0], lines[1], "newrt|end"], &["a:1", "b:1"]);
        assert_eq!(to(&table, 1, -1), expected);
        check_round_trip(&table, &own(&["a:1", "b:1"]));
    }
}

#[test]
fn a_node_does_not_send_to_itself() {
    let lines = ["newrt|start", "rte|1|a:1,b:1;a:1;c:1", "rte|2|a:1", "mse|2|5|d:1", "newrt|end"];
    let table = parse_as(&lines, &["a:1"]);
    assert_eq!(to(&table, 1, -1), "b:1;c:1");
    assert_eq!(to(&table, 2, -1), "nowhere");
    let written: Vec<_> = table.entries().map(|entry| entry.groups().count()).collect();
    assert_eq!(written, [3, 1, 1], "they are written all the same");
    check_round_trip(&table, &own(&["a:1"]));
    assert_eq!(table.to_text(), parse(&lines).to_text(), "what is pushed to others does not depend on who pushes");
}

#[test]
fn a_member_named_twice_has_two_turns() {
    assert_eq!(to(&parse(&["newrt|start", "rte|1|a:1,a:1,b:1", "newrt|end"]), 1, -1), "a:1,a:1,b:1");
}

#[test]
fn groups_may_be_larger_than_those_of_rmr() {
    let members: Vec<String> = (0..1000).map(|number| format!("app{number}:1")).collect();
    let groups = members.chunks(500).map(|group| group.join(",")).collect::<Vec<_>>().join(";");
    assert_eq!(to(&parse(&["newrt|start", &format!("rte|1|{groups}"), "newrt|end"]), 1, -1), groups);
}

#[test]
fn messages_may_go_to_the_owner_of_their_entity() {
    let table = parse(&[
        "newrt | start | routes",
        "mse | 3000 | -1 | %meid",
        "newrt | end | 1",
        "meid_map | start | owners",
        "mme_ar | control1:4560 | meid000  meid001\tmeid002",
        "mme_ar | control2:4560 | meid001 meid003",
        "mme_del | meid002 never",
        "meid_map | end | 3",
    ]);
    assert_eq!(to(&table, 3000, 5), "%meid");
    let owners = ["meid000", "meid001", "meid002", "meid003", "never"].map(|entity| owner(&table, entity));
    assert_eq!(owners, [Some("control1:4560"), Some("control2:4560"), None, Some("control2:4560"), None]);
    assert_eq!(table.id(), "owners", "the last section that names one");
    let entities: Vec<_> = table.entities().map(|(entity, _)| entity).collect();
    assert_eq!(entities, ["meid000", "meid001", "meid003"]);
}

#[test]
fn a_map_of_entities_has_an_md5_sum() {
    let records = "mme_ar|a:1|one two\r\n# a comment\r\nmme_del|three\r\n";
    for sum in ["f03c09e13d0f9b5e7a4dbb8dbfa8d0de", ""] {
        let text = format!("meid_map|start\r\n{records}meid_map|end|2|{sum}\r\n");
        let error = Table::parse_text(&text, &own(&[]), &Table::empty()).expect_err("a wrong sum");
        assert_eq!(error.line, 5);
        let right = error.what.strip_prefix("the records have the MD5 sum ").and_then(|rest| rest.split(',').next());
        let right = right.unwrap_or_else(|| panic!("{error}")).to_uppercase();
        let table =
            Table::parse_text(&text.replace(&format!("|2|{sum}"), &format!("|2|{right}")), &own(&[]), &Table::empty());
        assert_eq!(owner(&table.expect("the right sum"), "two"), Some("a:1"));
    }
    // From another implementation: `printf 'mme_ar|a:1|one\n' | md5sum`.
    let sum = "e9cab3eec3798b5b8236b950a815b681";
    parse(&["meid_map|start", "mme_ar|a:1|one", &format!("meid_map|end|1|{sum}")]);
}

#[test]
fn a_map_of_entities_is_no_whole_table() {
    let own = own(&[]);
    let map = parse(&["meid_map|start|m", "mme_ar|a:1|one", "meid_map|end"]);
    assert_eq!((map.is_complete(), map.id(), map.endpoints()), (false, "m", &["a:1".to_owned()][..]));
    check_round_trip(&map, &own);
    let error = Table::parse_text("updatert|start\n", &own, &map).expect_err("nothing to update");
    assert!(error.what.contains("no table yet"), "{error}");
}

#[test]
fn a_whole_table_replaces_routes_and_keeps_entities() {
    let own = own(&[]);
    let before = parse(&[
        "newrt|start|one",
        "rte|1|a:1",
        "newrt|end",
        "meid_map|start|map",
        "mme_ar|owner:1|meid",
        "meid_map|end",
    ]);
    let table = parse_after(&["newrt|start", "rte|2|b:1", "newrt|end"], &own, &before);
    assert_eq!([1, 2].map(|kind| to(&table, kind, -1)), ["-", "b:1"]);
    assert_eq!((owner(&table, "meid"), table.id()), (Some("owner:1"), ""));
    assert_eq!(table.endpoints(), ["b:1", "owner:1"]);
    assert_eq!(to(&before, 1, -1), "a:1", "the table before is as it was");
}

#[test]
fn a_whole_table_names_owners_of_entities_once() {
    let own = own(&[]);
    let before = parse(&[
        "newrt|start|one",
        "rte|1|a:1;b:1",
        "newrt|end",
        "meid_map|start",
        "mme_ar|b:1|meid1 meid2",
        "mme_ar|owner:1|meid3",
        "meid_map|end",
    ]);
    let after = ["newrt|start|two", "rte|1|c:1", "rte|2|c:1", "rte|3|b:1", "newrt|end"];
    let table = parse_after(&after, &own, &before);
    assert_eq!([1, 2, 3].map(|kind| to(&table, kind, -1)), ["c:1", "c:1", "b:1"]);
    assert_eq!(
        ["meid1", "meid2", "meid3"].map(|meid| owner(&table, meid)),
        [Some("b:1"), Some("b:1"), Some("owner:1")]
    );
    assert_eq!(table.endpoints(), ["c:1", "b:1", "owner:1"]);
    check_round_trip(&table, &own);
    let twice = [&after[..], &["newrt|start|two", "rte|1|a:1", "rte|3|c:1", "newrt|end"]].concat();
    let table = parse_after(&twice, &own, &before);
    assert_eq!([1, 2, 3].map(|kind| to(&table, kind, -1)), ["a:1", "-", "c:1"], "the second forgets the first");
    assert_eq!(
        (table.endpoints(), owner(&table, "meid1")),
        (&["a:1", "c:1", "b:1", "owner:1"].map(str::to_owned)[..], Some("b:1"))
    );
}

#[test]
fn entries_that_say_the_same_have_turns_of_their_own() {
    let table = parse(&["newrt|start", "rte|1|a:1,b:1", "rte|2|a:1,b:1", "rte|3|a:1,b:1", "newrt|end"]);
    let turn = |kind: i32| table.lookup(kind, -1).expect("a route").groups[0].next();
    assert_eq!([1, 2, 3, 1].map(turn), [0, 0, 0, 1]);
}

#[test]
fn an_update_changes_what_it_names() {
    let own = own(&[]);
    let before = parse(&["newrt|start|one", "rte|1|a:1", "rte|2|b:1", "mse|2|5|c:1", "newrt|end"]);
    let update = ["updatert | start | two", "rte | 1 | d:1", "del | 2 | 5", "rte|3|%meid", "updatert | end | 3"];
    let table = parse_after(&update, &own, &before);
    assert_eq!([(1, -1), (2, 5), (3, 0)].map(|(kind, sub)| to(&table, kind, sub)), ["d:1", "b:1", "%meid"]);
    assert_eq!((table.id(), table.endpoints()), ("two", &["d:1".to_owned(), "b:1".to_owned()][..]));
    let unnamed = parse_after(&["updatert|start", "updatert|end|0"], &own, &table);
    assert_eq!(unnamed, table, "an update without an id keeps that of the table");
}

#[test]
fn turns_go_on_after_an_update() {
    let own = own(&[]);
    let before = parse(&["newrt|start", "rte|1|x:1", "rte|2|a:1,b:1,c:1", "newrt|end"]);
    let turn = |table: &Table| table.lookup(2, -1).expect("a route").groups[0].next();
    assert_eq!(turn(&before), 0);
    let table = parse_after(&["updatert|start", "rte|9|d:1", "updatert|end"], &own, &before);
    assert_eq!(turn(&table), 1);
    let renumbered = parse_after(&["updatert|start", "del|1|-1", "updatert|end"], &own, &table);
    assert_eq!(turn(&renumbered), 2);
    assert_eq!(to(&renumbered, 2, -1), "a:1,b:1,c:1");
}

#[test]
fn an_entry_may_be_deleted_for_one_sender() {
    let lines = ["newrt|start", "mse|1|5|a:1", "rte|1|b:1", "del|1,me:1|5", "newrt|end|3"];
    assert_eq!(to(&parse(&lines), 1, 5), "a:1");
    let table = parse_as(&lines, &["me:1"]);
    assert_eq!(to(&table, 1, 5), "b:1");
    check_round_trip(&table, &own(&["me:1"]));
    let deleted: Vec<_> = table.entries().filter(|entry| entry.route().is_none()).collect();
    assert_eq!((deleted.len(), deleted[0].sender(), deleted[0].groups().count()), (1, Some("me:1"), 0));

    let again = parse_after(&["updatert|start", "mse|1,me:1|5|c:1", "updatert|end"], &own(&["me:1"]), &table);
    assert_eq!(to(&again, 1, 5), "c:1");
}

#[test]
fn deleting_leaves_nothing_behind() {
    let table = parse(&[
        "newrt|start",
        "rte|1,a:1,b:1|x:1",
        "del|1,a:1|-1",
        "del|1,b:1|-1",
        "rte|2|x:1",
        "rte|2,a:1|x:1",
        "del|2|-1",
        "del|3,a:1|-1",
        "newrt|end",
    ]);
    assert_eq!((table.entries().count(), table.endpoints().len()), (0, 0));
}

#[test]
fn deleting_for_one_sender_is_forgotten_where_nothing_is_taken_away() {
    let own = own(&[]);
    let before = parse(&["newrt|start", "mse|1,a:1|5|x:1", "del|1,b:1|5", "newrt|end"]);
    assert_eq!(before.entries().count(), 2, "for a node of both names");
    let table = parse_after(&["updatert|start", "mse|1,a:1|5|y:1", "updatert|end"], &own, &before);
    assert_eq!(table.entries().count(), 1);
    check_round_trip(&table, &own);
}

#[test]
fn several_sections_are_one_change() {
    let own = own(&[]);
    let lines = ["newrt|start", "rte|1|a:1", "newrt|end", "updatert|start", "rte|1|b:1", "updatert|end"];
    assert_eq!(to(&parse(&lines), 1, -1), "b:1");
    let wrong = format!("{}meid_map|start\nmeid_map|end|1\n", text(&lines));
    assert!(Table::parse_text(&wrong, &own, &Table::empty()).is_err());
}

#[test]
fn urls_are_endpoints_and_senders() {
    let table = parse_as(
        &[
            "newrt|start",
            "rte|1,shm://me|shm://a,unix:///run/x;tcp://host:7000,tls://host:7001,rmr://host:4560,nats://server/subject",
            "newrt|end",
            "meid_map|start",
            "mme_ar|shm://owner|meid",
            "meid_map|end",
        ],
        &["shm://me"],
    );
    assert_eq!(
        to(&table, 1, -1),
        "shm://a,unix:///run/x;tcp://host:7000,tls://host:7001,rmr://host:4560,nats://server/subject"
    );
    assert_eq!(owner(&table, "meid"), Some("shm://owner"));
    check_round_trip(&table, &own(&["shm://me"]));
}

#[test]
fn the_id_of_a_refused_text_is_known() {
    assert_eq!(id_of_text("newrt | start | one\nwrong\n"), "one");
    assert_eq!(id_of_text("newrt|start|one\nnewrt|end\nmeid_map|begin| two # x\nmme_ar"), "two");
    assert_eq!(id_of_text("newrt|start|one\nnewrt|end\nmeid_map|start\n"), "");
    assert_eq!(id_of_text("mse|start|one\nnewrt|end|2"), "");
}

#[test]
fn a_text_that_rmr_can_read_comes_out() {
    let table = parse(&[
        "newrt | start | t",
        "mse | 1, s:1, r:1 | 5 | a:1, b:1 ; c:1",
        "mse | 1 | -1 | %meid",
        "newrt | end",
        "meid_map | start | t",
        "mme_ar | o:1 | one  two",
        "meid_map | end",
    ]);
    let expected = [
        "newrt|start|t",
        "mse|1|-1|%meid",
        "mse|1,s:1,r:1|5|a:1,b:1;c:1",
        "newrt|end|2",
        "meid_map|start|t",
        "mme_ar|o:1|one two",
        "meid_map|end|1",
    ];
    assert_eq!(table.to_text(), text(&expected));
    check_round_trip(&table, &own(&[]));
    assert_eq!(Table::empty().to_text(), "");
}

#[test]
fn many_entities_take_several_records() {
    let entities: Vec<String> = (0..250).map(|number| format!("meid{number:03}")).collect();
    let table = parse(&["meid_map|start", &format!("mme_ar|a:1|{}", entities.join(" ")), "meid_map|end|1"]);
    let text = table.to_text();
    assert!(text.ends_with("meid_map|end|3\n"), "{text}");
    check_round_trip(&table, &own(&[]));
}

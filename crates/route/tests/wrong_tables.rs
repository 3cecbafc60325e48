//! Tables that are refused, each with the line and the words that whoever wrote it sees.

mod common;
use std::time::Instant;

use common::{own, parse, repeated, text};
use nearcall_route::table::Table;

/// Lines of RMR's text, and the error.
const TEXTS: &[(&[&str], &str)] = &[
    // Sections.
    (&[], "there is no table: it begins with `newrt | start` and ends with `newrt | end`"),
    (&["# nothing", ""], "there is no table: it begins with `newrt | start` and ends with `newrt | end`"),
    (
        &["newrt | start | x", "rte | 1 | a:1"],
        "line 2: the text ends within the section that `newrt` began on line 1: write `newrt | end`",
    ),
    (&["newrt"], "line 1: `newrt` is followed by `| start` or `| end`"),
    (&["newrt | strat"], "line 1: `newrt |` is followed by `start` or `end`, not by `strat`; did you mean `start`?"),
    (&["newrt | start | x | y"], "line 1: `newrt | start` is followed by an id and nothing else"),
    (
        &["newrt | start | #x | y", "newrt | ende"],
        "line 2: `newrt |` is followed by `start` or `end`, not by `ende`; did you mean `end`?",
    ),
    (&["newrt | end"], "line 1: `newrt | end` has no `newrt | start` before it"),
    (
        &["newrt | start", "newrt | start"],
        "line 2: the section that `newrt` began on line 1 has no end: write `newrt | end` first",
    ),
    (
        &["newrt | start", "meid_map | start"],
        "line 2: the section that `newrt` began on line 1 has no end: write `newrt | end` first",
    ),
    (
        &["newrt | start", "", "updatert | end"],
        "line 3: `updatert | end` ends the section that `newrt` began on line 1: write `newrt | end`",
    ),
    (
        &["newrt | start", "meid_map | end"],
        "line 2: `meid_map | end` ends the section that `newrt` began on line 1: write `newrt | end`",
    ),
    (
        &["updatert | start", "updatert | end"],
        "line 1: there is no table yet that `updatert` could change: send a whole one, with `newrt`",
    ),
    // Ids.
    (
        &["newrt | start | a\u{7}b"],
        "line 1: `a\\u{7}b` cannot be a table's id: no `|`, and nothing that cannot be seen",
    ),
    // Counts.
    (
        &["newrt | start", "rte | 1 | a:1", "newrt | end | 2"],
        "line 3: records expected: 2, records found: 1; the table is not complete, and none of it is used",
    ),
    (
        &["newrt | start", "rte | 1 | a:1", "rte | 2 | a:1", "newrt | end | 1"],
        "line 4: records expected: 1, records found: 2; the table is not complete, and none of it is used",
    ),
    (
        &["newrt | start", "newrt | end |"],
        "line 2: the count of records is missing: write a number, or `newrt | end` alone",
    ),
    (&["newrt | start", "newrt | end | none"], "line 2: `none` is no count of records: write a number"),
    (&["newrt | start", "newrt | end | -1"], "line 2: `-1` is no count of records: write a number"),
    (&["newrt | start", "newrt | end | 0 | 1"], "line 2: `newrt | end` is followed by a count, and nothing else"),
    (
        &["newrt | start", "newrt | end", "updatert | start", "updatert | end | 1"],
        "line 4: records expected: 1, records found: 0; the table is not complete, and none of it is used",
    ),
    (
        &["meid_map | start", "mme_ar | a:1 | m", "mme_del | m", "mme_del | n", "meid_map | end | 1"],
        "line 5: records expected: 1, records found: 3; the table is not complete, and none of it is used",
    ),
    (
        &["meid_map | start", "meid_map | end | 0 | 00"],
        "line 2: the records have the MD5 sum d41d8cd98f00b204e9800998ecf8427e, not `00`: they have been changed",
    ),
    (
        &["meid_map | start", "meid_map | end | 0 | 00 | 1"],
        "line 2: `meid_map | end` is followed by a count and an MD5 sum, and nothing else",
    ),
    // Records.
    (
        &["newrt | start", "mze | 1 | -1 | a:1"],
        "line 2: `mze` is no record: there are newrt, updatert, meid_map, mse, rte, del, mme_ar, mme_del; did you mean `mse`?",
    ),
    (
        &["newrt | start", "route | 1 | a:1"],
        "line 2: `route` is no record: there are newrt, updatert, meid_map, mse, rte, del, mme_ar, mme_del",
    ),
    (
        &["newrt | start", "  x"],
        "line 2: `x` is no record: there are newrt, updatert, meid_map, mse, rte, del, mme_ar, mme_del",
    ),
    (&["newrt | start", "| mse"], "line 2: the record has no name before its first `|`"),
    (
        &["NEWRT | start"],
        "line 1: `NEWRT` is no record: there are newrt, updatert, meid_map, mse, rte, del, mme_ar, mme_del",
    ),
    (&["rte | 1 | a:1"], "line 1: `rte` lies between `newrt | start` and `newrt | end`, or the two of `updatert`"),
    (
        &["newrt | start", "newrt | end", "mse | 1 | -1 | a:1"],
        "line 3: `mse` lies between `newrt | start` and `newrt | end`, or the two of `updatert`",
    ),
    (
        &["meid_map | start", "mse | 1 | -1 | a:1"],
        "line 2: `mse` lies between `newrt | start` and `newrt | end`, or the two of `updatert`",
    ),
    (&["newrt | start", "mme_ar | a:1 | m"], "line 2: `mme_ar` lies between `meid_map | start` and `meid_map | end`"),
    (&["mme_del | m"], "line 1: `mme_del` lies between `meid_map | start` and `meid_map | end`"),
    // Fields.
    (
        &["newrt | start", "mse | 1 | a:1"],
        "line 2: write `mse | type | subscription | endpoints`, with -1 for any subscription",
    ),
    (
        &["newrt | start", "mse | 1 | -1 | a:1 | b:1"],
        "line 2: write `mse | type | subscription | endpoints`, with -1 for any subscription",
    ),
    (&["newrt | start", "mse"], "line 2: write `mse | type | subscription | endpoints`, with -1 for any subscription"),
    (&["newrt | start", "rte | 1"], "line 2: write `rte | type | endpoints`"),
    (&["newrt | start", "rte | 1 | a:1 |"], "line 2: the subscription is missing: write a number"),
    (&["newrt | start", "rte | 1 | a:1 | 2 | 3"], "line 2: write `rte | type | endpoints`"),
    (
        &["newrt | start", "del | 1"],
        "line 2: write `del | type | subscription`, with -1 for the entry of any subscription",
    ),
    (&["meid_map | start", "mme_ar | a:1"], "line 2: write `mme_ar | endpoint | meid meid…`"),
    (&["meid_map | start", "mme_ar | a:1 |"], "line 2: write `mme_ar | endpoint | meid meid…`"),
    (&["meid_map | start", "mme_ar"], "line 2: write `mme_ar | endpoint | meid meid…`"),
    (&["meid_map | start", "mme_del"], "line 2: write `mme_del | meid meid…`"),
    (&["meid_map | start", "mme_del |"], "line 2: write `mme_del | meid meid…`"),
    (&["meid_map | start", "mme_del | m | n"], "line 2: write `mme_del | meid meid…`"),
    // Numbers.
    (
        &["newrt | start", "rte | 12abc | a:1"],
        "line 2: `12abc` is no message type: write a number, from -2147483648 to 2147483647",
    ),
    (&["newrt | start", "rte | | a:1"], "line 2: the message type is missing: write a number"),
    (&["newrt | start", "rte | ,a:1 | a:1"], "line 2: the message type is missing: write a number"),
    (
        &["newrt | start", "rte | 2147483648 | a:1"],
        "line 2: `2147483648` is no message type: write a number, from -2147483648 to 2147483647",
    ),
    (
        &["newrt | start", "mse | 1 | * | a:1"],
        "line 2: `*` is no subscription: write a number, from -2147483648 to 2147483647",
    ),
    (
        &["newrt | start", "mse | 1 | # any", "newrt | end"],
        "line 2: write `mse | type | subscription | endpoints`, with -1 for any subscription",
    ),
    // Endpoints and senders.
    (&["newrt | start", "mse | 1 | -1 |"], "line 2: the entry names no endpoint: write `host:port`, a URL, or `%meid`"),
    (
        &["newrt | start", "rte | 1 | a:1,,b:1"],
        "line 2: an endpoint is missing: write `host:port` or a URL such as `shm://name`",
    ),
    (
        &["newrt | start", "rte | 1 | a:1;"],
        "line 2: an endpoint is missing: write `host:port` or a URL such as `shm://name`",
    ),
    (
        &["newrt | start", "rte | 1 | ;a:1"],
        "line 2: an endpoint is missing: write `host:port` or a URL such as `shm://name`",
    ),
    (
        &["newrt | start", "rte | 1 | app1"],
        "line 2: `app1` is no endpoint: write `host:port`, such as `app1:4560` or `[::1]:4560`, or a URL such as `shm://name`",
    ),
    (
        &["newrt | start", "rte | 1 | app1:http"],
        "line 2: `app1:http` is no endpoint: `http` is no port: write a number from 1 to 65535",
    ),
    (&["newrt | start", "rte | 1 | a b:1"], "line 2: `a b:1` is no endpoint: ' ' cannot be part of one"),
    (
        &["newrt | start", "rte | 1 | sm://filter"],
        "line 2: `sm://filter` is no endpoint: its scheme is none of `shm://`, `unix://`, `tcp://`, `tls://`, `inproc://`, `rmr://`, `nats://`, `nats+tls://`, `jetstream://`, `jetstream+tls://`; did you mean `shm`?",
    ),
    (
        &["newrt | start", "rte | 1 | %meid;a:1"],
        "line 2: `%meid` stands alone: the message goes to its entity's owner, and to nobody else",
    ),
    (
        &["newrt | start", "rte | 1 | a:1,%meid"],
        "line 2: `%meid` stands alone: the message goes to its entity's owner, and to nobody else",
    ),
    (
        &["newrt | start", "rte | 1 | %mied"],
        "line 2: `%mied` is no endpoint: write `host:port`, such as `app1:4560` or `[::1]:4560`, or a URL such as `shm://name`",
    ),
    (
        &["newrt | start", "rte | 1,app | a:1"],
        "line 2: `app` is no endpoint: write `host:port`, such as `app1:4560` or `[::1]:4560`, or a URL such as `shm://name`",
    ),
    (
        &["newrt | start", "rte | 1, | a:1"],
        "line 2: an endpoint is missing: write `host:port` or a URL such as `shm://name`",
    ),
    (
        &["newrt | start", "rte | 1,a-name-that-is-much-too-long-for-the-source-of-any-message-of-rmr:4560 | a:1"],
        "line 2: the sender `a-name-that-is-much-too-long-for-the-source-of-any-message-o…` has 70 characters: a message's source has room for 63",
    ),
    (
        &["meid_map | start", "mme_ar | a | m"],
        "line 2: `a` is no endpoint: write `host:port`, such as `app1:4560` or `[::1]:4560`, or a URL such as `shm://name`",
    ),
    // Managed entities.
    (
        &["meid_map | start", "mme_ar | a:1 | m 12345678901234567890123456789012"],
        "line 2: the managed entity `12345678901234567890123456789012` has 32 bytes: a message has room for 31",
    ),
    (
        &["meid_map | start", "mme_del | 12345678901234567890123456789012"],
        "line 2: the managed entity `12345678901234567890123456789012` has 32 bytes: a message has room for 31",
    ),
];

#[test]
fn a_wrong_text_is_refused_with_its_line() {
    for (lines, expected) in TEXTS {
        let error = Table::parse_text(&text(lines), &own(&[]), &Table::empty()).expect_err("a wrong table");
        assert!(!error.what.contains('\n'));
        assert_eq!(error.to_string(), *expected, "{lines:?}");
    }
}

#[test]
fn a_wrong_text_is_refused_after_another_table_too() {
    let before = parse(&["newrt|start|before", "rte|1|a:1", "newrt|end"]);
    for (lines, expected) in TEXTS {
        let refused = Table::parse_text(&text(lines), &own(&[]), &before);
        match refused {
            Err(error) => assert_eq!(error.to_string(), *expected),
            Ok(table) => assert!(lines[0].starts_with("updatert") && table == before, "{lines:?}"),
        }
    }
}

#[test]
fn a_last_record_without_an_end_was_cut_off() {
    for (text, expected) in [
        ("newrt|start\nrte|1|a:1\nnewrt|end|1", "line 3: `newrt|end|1` has no end of line: the text was cut off"),
        ("newrt|start", "line 1: `newrt|start` has no end of line: the text was cut off"),
        ("newrt|start\nnewrt|end\nnewr", "line 3: `newr` has no end of line: the text was cut off"),
    ] {
        let error = Table::parse_text(text, &own(&[]), &Table::empty()).expect_err("cut off");
        assert_eq!(error.to_string(), expected);
    }
    // Nothing is lost of what says nothing.
    let rest = "newrt|start\nnewrt|end\n  # a comm";
    assert!(Table::parse_text(rest, &own(&[]), &Table::empty()).is_ok());
}

/// Every text that ends too early is refused, wherever it ends.
#[test]
fn no_part_of_a_table_is_one() {
    let whole = text(&["newrt | start | x", "rte | 1 | a:1", "mse | 1 | 2 | b:1", "newrt | end | 2"]);
    for end in 0..whole.len() {
        assert!(Table::parse_text(&whole[..end], &own(&[]), &Table::empty()).is_err(), "{}", &whole[..end]);
    }
    assert!(Table::parse_text(&whole, &own(&[]), &Table::empty()).is_ok());
}

#[test]
fn a_table_is_bounded() {
    let wrong = |text: &str| Table::parse_text(text, &own(&[]), &Table::empty()).expect_err("too much").to_string();
    assert_eq!(wrong(&" ".repeat((64 << 20) + 1)), "the table has 67108865 bytes, and may have 67108864");

    let senders = repeated(0..127, |number| format!(",s{number}:1"));
    let error = wrong(&text(&["newrt|start", &format!("rte|1{senders}|a:1")]));
    assert_eq!(error, "line 2: the entry has too many senders: it may have 126; write the others into a second one");

    let lines = repeated(0..=262_144, |kind| format!("rte|{kind}|a:1\n"));
    let error = wrong(&format!("newrt|start\n{lines}newrt|end\n"));
    assert_eq!(error, "line 262146: the table has too many entries: it may have 262144");

    let lines = repeated(0..=65_536, |number| format!("rte|1|a:1,b{number}:1\nrte|{number}|c{number}:1\n"));
    let error = wrong(&format!("newrt|start\n{lines}newrt|end\n"));
    assert_eq!(error, "line 131073: the table has too many endpoints: it may have 65536");

    let id = "x".repeat(256);
    let error = wrong(&text(&[&format!("newrt|start|{id}")]));
    assert!(error.ends_with("cannot be a table's id: it has 256 bytes, and may have 255"), "{error}");

    let entities = repeated(0..=262_144, |number| format!(" m{number}"));
    let error = wrong(&text(&["meid_map|start", &format!("mme_ar|a:1|{entities}")]));
    assert_eq!(error, "line 2: the table has too many managed entities: it may have 262144");
}

/// What grows with every record is not looked through at every record: that would take a hundred times as long.
#[test]
fn hostile_texts_take_no_more_time_than_honest_ones() {
    let taken = |record: fn(usize) -> String| {
        let lines = repeated(0..30_000, record);
        let section = if lines.starts_with("mme") { "meid_map" } else { "newrt" };
        let text = format!("{section}|start\n{lines}{section}|end\n");
        let read = |_| {
            let begin = Instant::now();
            Table::parse_text(&text, &own(&[]), &Table::empty()).expect("a table");
            begin.elapsed()
        };
        (0..3).map(read).min().expect("some rounds")
    };
    let honest = taken(|number| format!("rte|{number}|a:1\n"));
    for hostile in [
        |number| format!("rte|1,s{number}:1|a:1\n"), // one entry, very many senders
        |number| format!("rte|1,s{number}:1|a:1\ndel|1,s{number}:1|-1\n"),
        |number| format!("rte|{number}|a:1\ndel|{number}|-1\n"),
        |number| format!("mme_ar|a:1|m{number}\n"),
        |number| format!("rte|1|s{number}:1\n"),
    ] {
        let hostile = taken(hostile);
        assert!(hostile < 20 * honest, "{hostile:?}, and {honest:?} of an honest one");
    }
}

#[test]
fn what_one_record_says_of_many_senders_is_kept_and_written_once() {
    let senders = repeated(0..126, |number| format!(",s{number}:1"));
    let members = vec!["a:1"; 30_000].join(",");
    let table = parse(&["newrt|start", &format!("rte|1{senders}|{members}"), "newrt|end"]);
    assert_eq!(table.entries().count(), 126);
    assert!(table.to_text().len() < 2 * members.len());
}

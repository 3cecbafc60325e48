//! Tables in TOML, rule by rule.

mod common;
use common::{check_round_trip, own, owner, parse_as, to};
use nearcall_route::table::Table;

fn read(text: &str, names: &[&str]) -> Table {
    Table::parse_toml(text, &own(names)).unwrap_or_else(|error| panic!("{error}"))
}

const PIPELINE: &str = r#"
id = "pipeline-3"

[[route]]
type = 1000
subscription = 10
sender = "shm://filter"
to = ["shm://detector-1", "shm://detector-2"]     # these take turns
copy_to = ["shm://logger", ["shm://store-1", "shm://store-2"]]

[[route]]
type = 1000
to = "shm://detector-1"

[[route]]
type = 3000
to = "%meid"

[entities]
"shm://control1" = ["meid000", "meid001"]
"control2:4560" = "meid002"
"#;

#[test]
fn a_file_says_what_a_text_says() {
    let text = parse_as(
        &[
            "newrt | start | pipeline-3",
            "mse | 1000 | -1 | shm://detector-1",
            "mse | 1000,shm://filter | 10 | shm://detector-1,shm://detector-2; shm://logger; shm://store-1,shm://store-2",
            "mse | 3000 | -1 | %meid",
            "newrt | end",
            "meid_map | start | pipeline-3",
            "mme_ar | shm://control1 | meid000 meid001",
            "mme_ar | control2:4560 | meid002",
            "meid_map | end",
        ],
        &["shm://filter"],
    );
    let table = read(PIPELINE, &["shm://filter"]);
    assert_eq!(table, text);
    assert!(table.is_complete());
    check_round_trip(&table, &own(&["shm://filter"]));
    assert_eq!(to(&read(PIPELINE, &[]), 1000, 10), "shm://detector-1");
    assert_eq!(owner(&table, "meid002"), Some("control2:4560"));
}

#[test]
fn an_empty_file_is_a_table_without_routes() {
    let table = read("", &[]);
    assert_eq!((table.id(), table.is_complete(), table.entries().count()), ("", true, 0));
}

#[test]
fn a_route_for_one_sender_goes_first_wherever_it_stands() {
    for order in [[0, 1], [1, 0]] {
        let routes = ["[[route]]\ntype=1\nsender=[\"me:1\",\"you:1\"]\nto='a:1'\n", "[[route]]\ntype=1\nto='b:1'\n"];
        let text = order.map(|number| routes[number]).concat();
        assert_eq!(to(&read(&text, &["me:1"]), 1, -1), "a:1");
        assert_eq!(to(&read(&text, &["you:1"]), 1, -1), "a:1");
        assert_eq!(to(&read(&text, &["they:1"]), 1, -1), "b:1");
    }
}

#[test]
fn numbers_are_those_of_messages() {
    let table = read("[[route]]\ntype = 0x10\nto='a:1'", &[]);
    assert_eq!(to(&table, 16, -1), "a:1");
    let table = read("[[route]]\ntype = -2_147_483_648\nsubscription = -1\nto='a:1'", &[]);
    assert_eq!(to(&table, i32::MIN, 5), "a:1");
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    for (text, expected) in [
        ("id = ", "line 1: this is no TOML: "),
        ("id = 'a'\nid = 'b'", "line 2: this is no TOML: "),
        ("\nid = 5", "line 2: `id` is a string in quotes, and this is of TOML's type integer"),
        ("id = ' a'", "line 1: ` a` cannot be a table's id: no blank at its ends"),
        (
            "routes = 1",
            "line 1: `routes` is no key of a table: there are `id`, `route`, `entities`; did you mean `route`?",
        ),
        ("x = 1", "line 1: `x` is no key of a table: there are `id`, `route`, `entities`"),
        ("[route]\ntype = 1\nto = 'a:1'", "line 1: write each route below a line `[[route]]`"),
        ("route = [1]", "line 1: write each route below a line `[[route]]`"),
        (
            "[[route]]\ntype = 1\nsubscripton = 1\nto = 'a:1'",
            "line 3: `subscripton` is no key of a route: there are `type`, `subscription`, `sender`, `to`, `copy_to`; \
             did you mean `subscription`?",
        ),
        ("\n[[route]]\nto = 'a:1'", "line 2: the route lacks a `type`: the messages' number"),
        ("[[route]]\ntype = 1", "line 1: the route lacks `to`: an endpoint, or a list of endpoints that take turns"),
        (
            "[[route]]\ntype = '1'\nto='a:1'",
            "line 2: `type` is a number without quotes, and this is of TOML's type string",
        ),
        ("[[route]]\ntype = 2147483648\nto='a:1'", "line 2: `type` is a number from -2147483648 to 2147483647"),
        (
            "[[route]]\ntype = 1\nto='a:1'\nsubscription = 1.5",
            "line 4: `subscription` is a number without quotes, and this is of TOML's type float",
        ),
        ("[[route]]\ntype = 1\nto = []", "line 3: `to` is an empty list: name at least one"),
        (
            "[[route]]\ntype = 1\nto = [['a:1']]",
            "line 3: `to` is a string in quotes or a list of such, and this is of TOML's type array",
        ),
        ("[[route]]\ntype = 1\nto = ['a:1',\n  'b']", "line 4: `b` is no endpoint: write `host:port`"),
        ("[[route]]\ntype = 1\nto = 'a:1'\ncopy_to = 'b:1'", "line 4: `copy_to` is a list: each item gets a copy"),
        (
            "[[route]]\ntype = 1\nto = 'a:1'\ncopy_to = [[]]",
            "line 4: `an item of copy_to` is an empty list: name at least one",
        ),
        (
            "[[route]]\ntype = 1\nto = '%meid'\ncopy_to = ['b:1']",
            "line 4: `copy_to` cannot stand beside `to = \"%meid\"`",
        ),
        ("[[route]]\ntype = 1\nto = 'a:1'\ncopy_to = ['%meid']", "line 4: `%meid` is no endpoint"),
        ("[[route]]\ntype = 1\nsender = 'me'\nto = 'a:1'", "line 3: `me` is no endpoint"),
        ("[[route]]\ntype = 1\nsender = []\nto = 'a:1'", "line 3: `sender` is an empty list: name at least one"),
        (
            "[[route]]\ntype = 1\nto = 'a:1'\n[[route]]\ntype = 1\nsubscription = -1\nto = 'b:1'",
            "line 4: messages of type 1 and subscription -1 have a route already: \
             write more endpoints into that one, with `to` or `copy_to`",
        ),
        (
            "[[route]]\ntype = 1\nto = 'a:1'\nsender = 'x:1'\n[[route]]\ntype = 1\nsender = ['y:1', 'x:1']\nto = 'b:1'",
            "line 5: messages of `x:1` of type 1 and subscription -1 have a route already",
        ),
        ("entities = 1", "line 1: below `[entities]` write `\"endpoint\" = [\"meid\", …]`"),
        ("[entities]\nshm = ['m']", "line 2: `shm` is no endpoint"),
        ("[entities]\n'a:1' = [1]", "line 2: `what an endpoint owns` is a string in quotes or a list of such"),
        ("[entities]\n'a:1' = ['m n']", "line 2: `m n` is no name of a managed entity"),
        (
            "[entities]\n'a:1' = 'm'\n'b:1' = ['n',\n'm']",
            "line 4: the managed entity `m` is named twice: it has one owner",
        ),
    ] {
        let error = Table::parse_toml(text, &own(&[])).expect_err(text);
        assert!(error.to_string().starts_with(expected), "{error}\ninstead of\n{expected}\nfor\n{text}");
        assert!(!error.what.contains('\n'), "{error}");
    }
}

#[test]
fn a_file_is_bounded() {
    let wrong = |text: &str| Table::parse_toml(text, &own(&[])).expect_err("too much").to_string();
    assert_eq!(wrong(&" ".repeat((8 << 20) + 1)), "the table has 8388609 bytes, and may have 8388608 as TOML");
    for deep in
        ["[".repeat(100_000), "a.".repeat(100_000), format!("id = {}", "[".repeat(100_000)), "x={a=".repeat(100_000)]
    {
        let error = wrong(&deep);
        assert!(error.contains("this is no TOML"), "{error}");
    }
}

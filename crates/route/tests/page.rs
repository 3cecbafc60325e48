//! What `docs/routing-tables.md` shows is what this crate reads.

mod common;
use common::{own, owner, to};
use nearcall_route::table::Table;

const PAGE: &str = include_str!("../../../docs/routing-tables.md");

/// The first block of the page that begins like this.
fn shown(begin: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(begin).expect("the page shows one");
    rest.split_once("\n```").map(|(block, _)| block).expect("the block ends")
}

#[test]
fn the_text_of_the_page_is_a_table() {
    let text = format!("newrt{}\n", shown("\n```\nnewrt"));
    let table = Table::parse_text(&text, &own(&[]), &Table::empty()).unwrap_or_else(|error| panic!("{error}"));
    let places =
        [(1000, 10), (1000, 11), (2000, 1), (3000, -1)].map(|(kind, subscription)| to(&table, kind, subscription));
    assert_eq!(places, ["app0:43086,app1:43086;logger:20311", "app3:43086", "logger:30311", "%meid"]);
    assert_eq!((table.id(), owner(&table, "meid001")), ("rt-0929", Some("control1:4560")));
}

#[test]
fn the_file_of_the_page_is_a_table() {
    let table =
        Table::parse_toml(shown("\n```toml\n"), &own(&["shm://filter"])).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(to(&table, 1000, 10), "shm://detector-1,shm://detector-2;shm://logger;shm://store-1,shm://store-2");
    assert_eq!(to(&table, 1000, 5), "shm://detector-1");
    assert_eq!((table.id(), owner(&table, "meid002")), ("pipeline-3", Some("control2:4560")));
}

#[test]
fn the_limits_of_the_page_are_the_limits() {
    let limits = include_str!("../src/table/limits.rs");
    for (limit, written) in [
        ("MAX_TEXT: usize = 64 << 20", "64 MiB; as TOML 8 MiB"),
        ("MAX_TOML: usize = 8 << 20", "as TOML 8 MiB"),
        ("MAX_ENTRIES: usize = 1 << 18", "| entries | 262,144"),
        ("MAX_MEMBERS: usize = 1 << 22", "4,194,304"),
        ("MAX_ENDPOINTS: usize = 65_536", "| endpoints | 65,536"),
        ("MAX_ENTITIES: usize = 1 << 18", "| managed entities | 262,144"),
        ("MAX_SENDERS: usize = 126", "| 126"),
        ("MAX_ENDPOINT: usize = 512", "| 512 bytes"),
        ("MAX_SOURCE: usize = 63", "| 63 bytes"),
        ("MAX_ENTITY: usize = 31", "| 31 bytes"),
        ("MAX_ID: usize = 255", "| 255 bytes"),
    ] {
        assert!(limits.contains(limit), "{limit}");
        assert!(PAGE.contains(written), "{written}");
    }
}

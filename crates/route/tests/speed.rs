//! What a lookup and a change of tables cost: `cargo test --release -p nearcall-route --test speed -- --ignored --nocapture`.
//! For a machine that does nothing else.

mod common;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{own, repeated};
use nearcall_route::table::Table;

/// The best of some rounds: what others do on the machine only adds to it.
fn best(rounds: usize, mut run: impl FnMut()) -> Duration {
    let time = |()| {
        let begin = Instant::now();
        run();
        begin.elapsed()
    };
    std::iter::repeat_n((), rounds).map(time).min().expect("some rounds")
}

/// Half of the entries for one subscription each, half for all of a type.
fn table(entries: usize) -> String {
    let mut text = "newrt|start|speed\n".to_owned();
    for number in 0..entries / 2 {
        let _ = writeln!(text, "mse|{number}|{}|app{}:4560,app{}:4560", number % 100, number % 500, number % 300);
        let _ = writeln!(text, "rte|{number}|app{}:4560;logger:4560", number % 500);
    }
    let _ = writeln!(text, "newrt|end|{}", entries / 2 * 2);
    text
}

#[test]
#[ignore = "measures"]
fn lookups() {
    const LOOKUPS: usize = 1_000_000;
    const ENTRIES: usize = 10_000;
    let table = Table::parse_text(&table(ENTRIES), &own(&[]), &Table::empty()).expect("a table");
    // In no order that a processor could foresee.
    let kinds: Vec<i32> =
        (0..LOOKUPS as u64).map(|number| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as i32 % 5000).collect();
    for (what, subscription_of) in [
        ("type and subscription", (|kind| kind % 100) as fn(i32) -> i32),
        ("type alone, after the subscription", |_| 100),
        ("nothing", |_| 100),
    ] {
        let offset = if what == "nothing" { 5000 } else { 0 };
        let taken = best(20, || {
            for &kind in &kinds {
                let found = table.lookup(black_box(kind + offset), subscription_of(kind));
                assert_eq!(found.is_some(), offset == 0);
                black_box(found);
            }
        });
        let nanoseconds = taken.as_secs_f64() * 1e9 / LOOKUPS as f64;
        println!("lookup by {what}: {nanoseconds:.1} ns, with {ENTRIES} entries");
        assert!(cfg!(debug_assertions) || nanoseconds < 50.0, "a lookup is to take less than 50 ns");
    }

    let group = &table.lookup(0, 0).expect("an entry").groups[0];
    let taken = best(20, || (0..LOOKUPS).for_each(|_| _ = black_box(group.next())));
    println!("a group's next turn: {:.1} ns", taken.as_secs_f64() * 1e9 / LOOKUPS as f64);

    let entities = repeated(0..10_000, |number| format!(" meid{number}"));
    let entities = format!("meid_map|start\nmme_ar|a:1|{entities}\nmeid_map|end\n");
    let table = Table::parse_text(&entities, &own(&[]), &Table::empty()).expect("a table");
    let names: Vec<String> = kinds.iter().take(10_000).map(|kind| format!("meid{kind}")).collect();
    let taken = best(20, || names.iter().for_each(|name| assert!(black_box(table.owner(name)).is_some())));
    println!("an entity's owner: {:.1} ns, of 10000", taken.as_secs_f64() * 1e9 / names.len() as f64);
}

#[test]
#[ignore = "measures"]
fn changes() {
    for entries in [100, 10_000, 200_000] {
        let text = table(entries);
        let (own, empty) = (own(&["me:1"]), Table::empty());
        let read = best(3, || drop(Table::parse_text(&text, &own, &empty).expect("a table")));
        let table = Table::parse_text(&text, &own, &empty).expect("a table");
        let update = "updatert|start\nrte|7|new:1\nupdatert|end|1\n";
        let update = best(3, || drop(Table::parse_text(update, &own, &table).expect("a table")));
        let write = best(3, || drop(black_box(table.to_text())));
        println!("{entries} entries: read in {read:?}, one of them changed in {update:?}, written in {write:?}");
    }
}

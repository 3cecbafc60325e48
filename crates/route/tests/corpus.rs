//! Runs each fuzz target once over its committed corpus (`make fuzz` continues from there).
#![allow(missing_docs, reason = "the target documents itself to those who run it")]

#[path = "../../../fuzz/src/rmr_frames.rs"]
mod rmr_frames;

#[path = "../../../fuzz/src/route_table.rs"]
mod route_table;

#[path = "../../../fuzz/src/route_message.rs"]
mod route_message;

#[test]
fn tables() {
    over("route_table", route_table::run);
}

#[test]
fn messages() {
    over("route_message", route_message::run);
}

#[test]
fn messages_of_rmr() {
    over("rmr_frames", rmr_frames::run);
}

fn over(name: &str, run: fn(&[u8])) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut inputs: Vec<_> =
        std::fs::read_dir(corpus).expect("the corpus").map(|entry| entry.expect("an entry").path()).collect();
    inputs.sort();
    assert!(inputs.len() >= 20, "the target has lost its corpus");
    for path in inputs {
        let input = std::fs::read(&path).expect("an input");
        // A panic names the line that failed; this names the input.
        let outcome = std::panic::catch_unwind(|| run(&input));
        assert!(outcome.is_ok(), "{} fails", path.display());
    }
}

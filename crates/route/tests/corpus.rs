//! Runs the fuzz targets once over their committed corpora (`make fuzz` continues from there).
#![allow(missing_docs, reason = "the targets document themselves to those who run them")]

#[path = "../../../fuzz/src/rmr_frames.rs"]
mod rmr_frames;
#[path = "../../../fuzz/src/route_table.rs"]
mod route_table;

fn each(target: &str, least: usize, run: fn(&[u8])) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs: Vec<_> =
        std::fs::read_dir(corpus).expect("the corpus").map(|entry| entry.expect("an entry").path()).collect();
    inputs.sort();
    assert!(inputs.len() >= least, "the target has lost its corpus");
    for path in inputs {
        let input = std::fs::read(&path).expect("an input");
        // A panic names the line that failed; this names the input.
        let outcome = std::panic::catch_unwind(|| run(&input));
        assert!(outcome.is_ok(), "{} fails", path.display());
    }
}

#[test]
fn tables() {
    each("route_table", 20, route_table::run);
}

#[test]
fn messages_of_rmr() {
    each("rmr_frames", 30, rmr_frames::run);
}

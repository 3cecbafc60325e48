//! The fuzz targets, run once over their committed corpus (`make fuzz` goes on from there).
#![allow(missing_docs, reason = "the targets document themselves to those who run them")]

#[path = "../../../fuzz/src/hpack_decode.rs"]
mod hpack_decode;
#[path = "../../../fuzz/src/http_session.rs"]
mod http_session;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs: Vec<_> =
        std::fs::read_dir(corpus).expect("the corpus").map(|entry| entry.expect("an entry").path()).collect();
    inputs.sort();
    assert!(inputs.len() >= 20, "{target} has lost its corpus");
    for path in inputs {
        let input = std::fs::read(&path).expect("an input");
        // A panic names the line that failed; this names the input.
        let outcome = std::panic::catch_unwind(|| run(&input));
        assert!(outcome.is_ok(), "{} fails", path.display());
    }
}

#[test]
fn header_blocks() {
    replay("hpack_decode", hpack_decode::run);
}

#[test]
fn connections() {
    replay("http_session", http_session::run);
}

//! Runs the fuzz targets once over their committed corpus (`make fuzz` continues from there).
#![allow(missing_docs, reason = "the targets document themselves to those who run them")]

#[path = "../../../fuzz/src/frame_decode.rs"]
mod frame_decode;
#[path = "../../../fuzz/src/handshake.rs"]
mod handshake;
#[path = "../../../fuzz/src/hpack_decode.rs"]
mod hpack_decode;
#[path = "../../../fuzz/src/http1.rs"]
mod http1;
#[path = "../../../fuzz/src/http1_client.rs"]
mod http1_client;
#[path = "../../../fuzz/src/http1_limits.rs"]
mod http1_limits;
#[path = "../../../fuzz/src/http_session.rs"]
mod http_session;
#[path = "../../../fuzz/src/json.rs"]
mod json;
#[path = "../../../fuzz/src/protobuf.rs"]
mod protobuf;
#[path = "../../../fuzz/src/ring_hostile.rs"]
mod ring_hostile;
#[path = "../../../fuzz/src/stream_link.rs"]
mod stream_link;

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
fn frames() {
    replay("frame_decode", frame_decode::run);
}

#[test]
fn handshakes() {
    replay("handshake", handshake::run);
}

#[test]
fn header_blocks() {
    replay("hpack_decode", hpack_decode::run);
}

#[test]
fn http_connections() {
    replay("http_session", http_session::run);
}

#[test]
fn http1_connections() {
    replay("http1", http1::run);
}

#[test]
fn connections_to_servers_of_http1() {
    replay("http1_client", http1_client::run);
}

#[test]
fn texts() {
    replay("json", json::run);
}

#[test]
fn messages() {
    replay("protobuf", protobuf::run);
}

#[test]
fn rings() {
    replay("ring_hostile", ring_hostile::run);
}

#[test]
fn streams() {
    replay("stream_link", stream_link::run);
}

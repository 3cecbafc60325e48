//! The first bytes of a peer: preamble, hello, welcome.
use nearcall_wire::{Hello, MAX_HANDSHAKE, Preamble, Welcome};

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(bytes: &[u8]) {
    let rest = match bytes.split_first_chunk() {
        Some((preamble, rest)) => {
            match Preamble::decode(preamble) {
                Ok(Preamble::Hello(len) | Preamble::Welcome(len) | Preamble::Reject(len)) => {
                    assert!(len <= MAX_HANDSHAKE);
                }
                Err(error) => assert!(!error.to_string().contains('\n'), "one line for the user"),
            }
            rest
        }
        None => bytes,
    };
    for message in [bytes, rest] {
        if let Ok(hello) = Hello::decode(message) {
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
        if let Ok(welcome) = Welcome::decode(message) {
            assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
    }
}

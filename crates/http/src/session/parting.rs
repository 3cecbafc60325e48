//! How a side says that it takes no more streams, and why a connection ends.

use super::Session;
use crate::code::Code;
use crate::event::StreamId;
use crate::frame::{HIGHEST, kind, put};

/// The longest reason in a GOAWAY, sent or received, in bytes.
pub(super) const LONGEST_WORDS: usize = 256;

/// Everything that a server sends to a client that it rejects: a GOAWAY without settings. With settings in front, the
/// connection would look usable for a moment, and gRPC's clients would make the next one at once.
#[must_use]
pub fn refusal(code: Code, why: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_goodbye(&mut out, 0, code, why);
    out
}

/// Everything that a server sends to a client that is welcome, but too late: a GOAWAY behind the settings with which a
/// server begins (RFC 9113, section 3.4). Clients that insist on these read the reason, and may connect anew at once.
#[must_use]
pub fn farewell(code: Code, why: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, kind::SETTINGS, 0, 0, &[]);
    put_goodbye(&mut out, 0, code, why);
    out
}

fn put_goodbye(out: &mut Vec<u8>, last: StreamId, code: Code, why: &str) {
    let words = &why.as_bytes()[..why.len().min(LONGEST_WORDS)];
    put(out, kind::GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &code.0.to_be_bytes(), words].concat());
}

impl Session {
    /// Asks the peer to begin no more streams. Streams whose requests are on their way are still accepted.
    pub fn drain(&mut self) {
        if self.draining.is_none() {
            self.goodbye(HIGHEST, Code::NO_ERROR, "");
        }
    }

    /// Refuses streams that the peer begins from now on.
    pub fn drain_now(&mut self) {
        if self.draining.is_none_or(|last| last == HIGHEST) {
            let last = if self.is_server { self.highest } else { 0 };
            self.goodbye(last, Code::NO_ERROR, "");
        }
    }

    /// Tells the peer why the connection ends. The owner flushes and closes it.
    pub fn shut(&mut self, code: Code, why: &str) {
        let last = if self.is_server { self.highest } else { 0 };
        self.goodbye(last, code, why);
    }

    fn goodbye(&mut self, last: StreamId, code: Code, why: &str) {
        // A GOAWAY never names a higher stream than the one before it.
        let last = self.draining.map_or(last, |before| before.min(last));
        self.draining = Some(last);
        put_goodbye(self.output.buffer(), last, code, why);
    }
}

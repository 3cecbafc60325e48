//! The encoding of a call's failure.

use crate::malformed::Malformed;

/// The names of gRPC's status codes, by code. nearcall uses the same codes. `0` is OK and is never sent in a failure.
pub const CODE_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
const HIGHEST_CODE: u8 = CODE_NAMES.len() as u8 - 1;

/// The payload of an error frame: code, message, details.
///
/// ```text
/// u8 code | u32 length of message | message, UTF-8 | details: the rest, opaque
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One of gRPC's codes, 1 to 16.
    pub code: u8,
    /// For people.
    pub message: String,
    /// For programs, in the codec's encoding; empty if there are none.
    pub details: Vec<u8>,
}

/// The most bytes of a message.
const MOST_TEXT: usize = 16_384;

impl Failure {
    /// The caller has cancelled the call.
    pub const CANCELLED: u8 = 1;
    /// An exception that has no status of its own.
    pub const UNKNOWN: u8 = 2;
    /// The request cannot be understood.
    pub const INVALID_ARGUMENT: u8 = 3;
    /// Time ran out.
    pub const DEADLINE_EXCEEDED: u8 = 4;
    /// There is no such thing, or no longer.
    pub const NOT_FOUND: u8 = 5;
    /// There is such a thing already.
    pub const ALREADY_EXISTS: u8 = 6;
    /// The peer may not do this.
    pub const PERMISSION_DENIED: u8 = 7;
    /// A limit was reached.
    pub const RESOURCE_EXHAUSTED: u8 = 8;
    /// Client and server do not fit together.
    pub const FAILED_PRECONDITION: u8 = 9;
    /// Other calls were in the way.
    pub const ABORTED: u8 = 10;
    /// The value is outside the valid range.
    pub const OUT_OF_RANGE: u8 = 11;
    /// The server has no such method.
    pub const UNIMPLEMENTED: u8 = 12;
    /// An internal error: something that must always hold did not.
    pub const INTERNAL: u8 = 13;
    /// There is no server, or no longer.
    pub const UNAVAILABLE: u8 = 14;
    /// The peer could not prove its identity.
    pub const UNAUTHENTICATED: u8 = 16;

    /// A failure without details.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new() }
    }

    /// Cuts a message that is too long to read. The text of an exception may have any length.
    pub fn cut(&mut self) {
        if self.message.len() > MOST_TEXT {
            let at = (0..=MOST_TEXT).rev().find(|&at| self.message.is_char_boundary(at)).unwrap_or(0);
            self.message.truncate(at);
        }
    }

    /// The payload of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(5 + self.message.len() + self.details.len());
        out.push(self.code);
        out.extend_from_slice(&(self.message.len() as u32).to_le_bytes());
        out.extend_from_slice(self.message.as_bytes());
        out.extend_from_slice(&self.details);
        out
    }

    /// Reads a payload. A code outside gRPC's becomes `UNKNOWN`, broken UTF-8 is replaced, and a long message is cut.
    ///
    /// # Errors
    /// [`Malformed`] if the payload is shorter than it says.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let (head, rest) = payload.split_at_checked(5).ok_or(Malformed("an error frame is too short"))?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (message, details) =
            rest.split_at_checked(len).ok_or(Malformed("an error frame's message is longer than the frame"))?;
        let code = if (1..=HIGHEST_CODE).contains(&head[0]) { head[0] } else { Self::UNKNOWN };
        // Reads a few bytes more than the limit, so that `cut` can remove an incomplete character at the end.
        let message = String::from_utf8_lossy(&message[..message.len().min(MOST_TEXT + 4)]).into_owned();
        let mut failure = Self { code, message, details: details.to_vec() };
        failure.cut();
        Ok(failure)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::new(Self::INTERNAL, malformed.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_message(message: &[u8]) -> Failure {
        let mut payload = vec![5];
        payload.extend_from_slice(&(message.len() as u32).to_le_bytes());
        payload.extend_from_slice(message);
        payload.extend_from_slice(b"details");
        Failure::decode(&payload).expect("well formed")
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_where_a_character_ends() {
        let whole = "é".repeat(MOST_TEXT / 2);
        assert_eq!(of_message(whole.as_bytes()).message, whole);
        assert_eq!(of_message(format!("x{whole}").as_bytes()).message, format!("x{}", "é".repeat(MOST_TEXT / 2 - 1)));
        let broken = of_message(&vec![0xff; 1 << 20]);
        assert!(broken.message.len() <= MOST_TEXT && broken.message.chars().all(|each| each == '\u{fffd}'));
        assert_eq!(broken.details, b"details");
    }
}

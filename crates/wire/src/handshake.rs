//! The first exchange on a connection: versions, limits, and what the server offers.
//!
//! ```text
//! preamble: "NCAL" | u8 protocol | u8 kind (1 hello, 2 welcome, 3 reject) | u16 zero | u32 length | that many bytes
//! ```
//! Hello and welcome are JSON objects, a reject is a sentence for people. The welcome carries the description of the
//! server's services; methods are numbered in its order.

use serde::{Deserialize, Serialize};

use crate::shown::shown;

/// First bytes of every connection, so that another protocol is recognised at once.
pub const MAGIC: [u8; 4] = *b"NCAL";
/// Version of frames and handshake. Both sides must agree.
pub const PROTOCOL: u8 = 1;
/// What a reject is called in its preamble, in every version.
const REJECT: u8 = 3;
/// Longest handshake message, bytes.
pub const MAX_HANDSHAKE: usize = 16 << 20;

/// A side's limits, which the other side must not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The longest message that the sender of this accepts, in bytes.
    pub max_message: u64,
}

/// The client's first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the library, for messages.
    pub version: String,
    /// The client's limits.
    pub limits: Limits,
    /// Size of each ring in the shared memory that was sent along, in bytes; 0 on other transports.
    #[serde(default)]
    pub ring: u64,
    /// How many of the server's buffers the client keeps track of at a time; 0 if it cannot borrow buffers.
    #[serde(default)]
    pub buffers: u32,
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Version of the library, for messages.
    pub version: String,
    /// The server's limits.
    pub limits: Limits,
    /// The services, as the server describes them (JSON, opaque to this floor).
    pub description: String,
    /// Whether the server uses the shared memory that was sent with the hello.
    #[serde(default)]
    pub memory: bool,
    /// How many of the client's buffers the server keeps track of at a time; 0 if it cannot borrow buffers.
    #[serde(default)]
    pub buffers: u32,
}

/// The kind and the length of a handshake message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preamble {
    /// A [`Hello`] of so many bytes follows.
    Hello(usize),
    /// A [`Welcome`] of so many bytes follows.
    Welcome(usize),
    /// A sentence of so many bytes follows.
    Reject(usize),
}

/// Why the first bytes of a peer are unusable; written for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreambleError {
    /// Not this protocol at all.
    #[error("the peer does not speak nearcall (its first bytes are {0})")]
    NotNearcall(String),
    /// Another version of it. Whoever knows the roles says [more](versions_differ).
    #[error("the peer speaks version {0} of the nearcall protocol, this side version {PROTOCOL}")]
    Version(u8),
    /// This version, but malformed.
    #[error("the peer's handshake is broken: {0}")]
    Broken(&'static str),
}

/// Why a client and a server of different versions cannot talk. Reads the same on both sides.
#[must_use]
pub fn versions_differ(client: u8, server: u8) -> String {
    let older = if client < server { "client" } else { "server" };
    format!(
        "the client speaks version {client} of the nearcall protocol, and the server version {server}: update nearcall at the {older}"
    )
}

impl Preamble {
    /// Bytes of a preamble.
    pub const LEN: usize = 12;

    /// The preamble in front of a handshake message.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let (kind, len) = match self {
            Self::Hello(len) => (1, len),
            Self::Welcome(len) => (2, len),
            Self::Reject(len) => (REJECT, len),
        };
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = PROTOCOL;
        out[5] = kind;
        out[8..].copy_from_slice(&(len as u32).to_le_bytes());
        out
    }

    /// Reads a preamble. The version is checked before all fields that another version might change. A reject is the same
    /// in every version, so that its reader learns why.
    ///
    /// # Errors
    /// [`PreambleError`] with a sentence for the user.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, PreambleError> {
        if bytes[..4] != MAGIC {
            return Err(PreambleError::NotNearcall(format!("\"{}\"", bytes.escape_ascii())));
        }
        if bytes[4] != PROTOCOL && bytes[5] != REJECT {
            return Err(PreambleError::Version(bytes[4]));
        }
        let len = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
        if len > MAX_HANDSHAKE {
            return Err(PreambleError::Broken("it announces more than 16 MiB"));
        }
        match bytes[5] {
            1 => Ok(Self::Hello(len)),
            2 => Ok(Self::Welcome(len)),
            REJECT => Ok(Self::Reject(len)),
            _ => Err(PreambleError::Broken("it is neither hello, welcome nor reject")),
        }
    }
}

impl Hello {
    /// The message after the preamble.
    ///
    /// # Panics
    /// Never: the fields always encode.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields encode")
    }

    /// Reads the message after the preamble.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| unreadable("client's hello", &error))
    }
}

impl Welcome {
    /// The message after the preamble.
    ///
    /// # Panics
    /// Never: the fields always encode.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields encode")
    }

    /// Reads the message after the preamble.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| unreadable("server's welcome", &error))
    }
}

/// Makes the error for a message that cannot be read. The error may contain parts of the message.
fn unreadable(what: &str, error: &serde_json::Error) -> String {
    format!("the {what} cannot be read: {}", shown(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_comes_back() {
        for preamble in [Preamble::Hello(0), Preamble::Welcome(70_000), Preamble::Reject(12)] {
            assert_eq!(Preamble::decode(&preamble.encode()), Ok(preamble));
        }
    }

    #[test]
    fn another_protocol_and_another_version_are_told_apart() {
        let error = Preamble::decode(b"GET / HTTP/1").expect_err("not ours");
        assert!(error.to_string().contains("GET / HTTP"), "{error}");
        let mut old = Preamble::Hello(3).encode();
        old[4] = 9;
        let error = Preamble::decode(&old).expect_err("other version");
        assert!(error.to_string().contains("version 9"), "{error}");
        old[5] = REJECT;
        assert_eq!(Preamble::decode(&old), Ok(Preamble::Reject(3)), "in any version");
    }

    #[test]
    fn the_older_side_is_named() {
        assert!(versions_differ(1, 2).ends_with("at the client"));
        assert!(versions_differ(2, 1).ends_with("at the server"));
    }
}

//! How messages are written that come over HTTP.

/// How a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Protobuf.
    Proto,
    /// Protobuf's JSON, as programs send it.
    Json,
    /// The same as people send it: with nothing that says that it is Connect.
    PlainJson,
}

impl Codec {
    /// As content types name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Proto => "proto",
            Self::Json | Self::PlainJson => "json",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "proto" => Some(Self::Proto),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

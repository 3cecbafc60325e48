//! The codecs of messages over HTTP.

/// The encoding of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Protobuf.
    Proto,
    /// Protobuf's JSON, as programs send it.
    Json,
    /// Protobuf's JSON as people send it: without any sign of Connect.
    PlainJson,
}

impl Codec {
    /// The name in content types.
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

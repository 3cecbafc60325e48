//! Error codes that end a stream or a connection.

/// HTTP/2's error codes (RFC 9113, section 7). Unknown ones are kept as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// All is well: a graceful end.
    pub const NO_ERROR: Self = Self(0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// Something failed at this side.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More was sent than a window allows.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// A setting was not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// A frame arrived for a stream that its sender had ended.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame of a wrong length.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The stream was not begun: it may be tried again.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is not needed any more.
    pub const CANCEL: Self = Self(8);
    /// A header block cannot be read.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// The tunnel's connection failed.
    pub const CONNECT_ERROR: Self = Self(10);
    /// The peer causes more work than it is allowed.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// TLS is weaker than HTTP/2 allows.
    pub const INADEQUATE_SECURITY: Self = Self(12);
    /// HTTP/1.1 is needed.
    pub const HTTP_1_1_REQUIRED: Self = Self(13);

    /// The specification's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(self.0 as usize).copied().unwrap_or("an unknown code")
    }

    /// gRPC's status for a call whose stream was reset with this code.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::REFUSED_STREAM => 14,
            Self::CANCEL => 1,
            Self::ENHANCE_YOUR_CALM => 8,
            Self::INADEQUATE_SECURITY => 7,
            _ => 13,
        }
    }
}

/// An error that ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{why} ({})", code.name())]
pub struct Broken {
    /// The code that is sent to the peer.
    pub code: Code,
    /// What was wrong.
    pub why: &'static str,
}

impl Broken {
    pub(crate) fn new(code: Code, why: &'static str) -> Self {
        Self { code, why }
    }
}

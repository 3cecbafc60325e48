//! Names of header fields that belong to protocols, not to the user.

/// Fields about a single connection, which HTTP/2 does not have.
pub(crate) fn is_of_connection(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade")
}

/// Whether a field belongs to HTTP, gRPC or Connect, and so is not metadata of the user.
pub(crate) fn is_own(name: &[u8]) -> bool {
    matches!(
        name,
        [b':', ..]
            | b"te"
            | b"content-type"
            | b"content-length"
            | b"accept-encoding"
            | b"content-encoding"
            | b"host"
            | b"grpc-timeout"
            | b"grpc-encoding"
            | b"grpc-accept-encoding"
            | b"grpc-message-type"
            | b"grpc-status"
            | b"grpc-message"
            | b"grpc-status-details-bin"
            | b"connect-protocol-version"
            | b"connect-timeout-ms"
            | b"connect-content-encoding"
            | b"connect-accept-encoding"
            | b"x-grpc-web"
    )
}

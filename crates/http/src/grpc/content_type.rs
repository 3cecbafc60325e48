//! Content types of gRPC, and the codecs that they name.

/// The start of gRPC's content types.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";

/// The codec that a content type names: `proto` if none. `None` if it is not gRPC's.
pub(crate) fn codec(content_type: &str) -> Option<&str> {
    let rest = content_type.strip_prefix(CONTENT_TYPE)?;
    let rest = rest.split_once(';').map_or(rest, |(before, _)| before).trim_end();
    match rest.strip_prefix('+') {
        Some(codec) if !codec.is_empty() => Some(codec),
        None if rest.is_empty() => Some("proto"),
        // `application/grpc-web` among them.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::codec;

    #[test]
    fn content_types_name_codecs() {
        assert_eq!(codec("application/grpc"), Some("proto"));
        assert_eq!(codec("application/grpc+json"), Some("json"));
        assert_eq!(codec("application/grpc+proto; charset=utf-8"), Some("proto"));
        assert_eq!(codec("application/grpc;x"), Some("proto"));
        for other in ["application/grpc-web", "application/grpcx", "application/json", "", "application/grpc+"] {
            assert_eq!(codec(other), None, "{other}");
        }
    }
}

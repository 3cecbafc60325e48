//! Content types of gRPC, and the codecs that they name.

/// The start of gRPC's content types.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";

/// The content type of the reply to a request in this codec. A client accepts only the codec of its request. Without a
/// name, the codec is Protobuf.
pub(crate) fn reply_type(codec: Option<&str>) -> &'static str {
    match codec {
        Some("json") => "application/grpc+json",
        _ => CONTENT_TYPE,
    }
}

/// The codec that a content type names, or `proto` if it names none. `None` if the content type is not gRPC's.
pub(crate) fn codec(content_type: &str) -> Option<&str> {
    let rest = content_type.strip_prefix(CONTENT_TYPE)?;
    let rest = rest.split_once(';').map_or(rest, |(before, _)| before).trim_end();
    match rest.strip_prefix('+') {
        Some(codec) if !codec.is_empty() => Some(codec),
        None if rest.is_empty() => Some("proto"),
        // For example `application/grpc-web`.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{codec, reply_type};

    #[test]
    fn content_types_name_codecs() {
        assert_eq!(codec("application/grpc"), Some("proto"));
        assert_eq!(codec("application/grpc+json"), Some("json"));
        assert_eq!(codec("application/grpc+proto; charset=utf-8"), Some("proto"));
        assert_eq!(codec("application/grpc;x"), Some("proto"));
        for (asked, answered) in [("json", "application/grpc+json"), ("proto", "application/grpc")] {
            assert_eq!(reply_type(Some(asked)), answered);
        }
        for other in ["application/grpc-web", "application/grpcx", "application/json", "", "application/grpc+"] {
            assert_eq!(codec(other), None, "{other}");
        }
    }
}

//! Frame heads, payload tables, metadata and failures: any bytes give a value or an error, and a value comes back as it
//! was when encoded again.
use nearcall_wire::{Failure, FrameHead};

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(bytes: &[u8]) {
    if let Ok((head, at)) = FrameHead::decode(bytes) {
        let payload = &bytes[at..];
        if let Some(parts) = head.extras().and_then(|extras| extras.parts.as_ref())
            && let Ok((body, buffers)) = parts.ranges(payload.len())
        {
            let end = buffers.iter().fold(body, |end, &(start, len)| {
                assert_eq!(start, end, "the buffers lie end to end");
                end + len
            });
            assert_eq!(end, payload.len(), "and fill the payload");
        }
        let mut again = Vec::new();
        head.encode(&mut again);
        let (same, len) = FrameHead::decode(&again).expect("what was encoded is sound");
        assert_eq!((same, len), (head, again.len()));
        let _ = Failure::decode(payload);
    }
    if let Ok(failure) = Failure::decode(bytes) {
        assert!((1..=16).contains(&failure.code));
        assert_eq!(Failure::decode(&failure.encode()), Ok(failure));
    }
}

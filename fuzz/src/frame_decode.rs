//! Frame heads, payload tables, metadata and failures: any bytes give a value or an error, and a value comes back as it
//! was when encoded again. Looking for keys that collide comes to an end, and gives back keys that are in the message.
use nearcall_wire::{Effort, Failure, FrameHead, KeyType, TooMuch, Watch, holds_more_than};

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
    keys(bytes);
    if let Ok(failure) = Failure::decode(bytes) {
        assert!((1..=16).contains(&failure.code));
        assert_eq!(Failure::decode(&failure.encode()), Ok(failure));
    }
}

fn keys(bytes: &[u8]) {
    let _ = holds_more_than(bytes, 100);
    let types = [KeyType::AsSent, KeyType::Converted];
    for (number, key_type) in types.iter().enumerate() {
        let _ = key_type.hash(bytes);
        let _ = key_type.same(bytes, bytes.get(number..).unwrap_or(bytes));
        let watch = Watch { lists: number % 2 == 0, keys: types[..=number].to_vec() };
        let mut effort = Effort::default();
        let Ok(tables) = watch.look(bytes, &mut effort) else { continue };
        for table in tables {
            let mut end = 0;
            for key in &table.keys {
                assert!(end <= key.start && key.start < key.end, "keys lie one behind the other");
                end = key.end;
            }
            assert!(end <= bytes.len(), "and in the message");
            let _ = table.add::<TooMuch>(bytes, &watch.keys, &mut effort, |_, hashes| {
                hashes.extend(table.keys.iter().map(|key| i64::from(bytes[key.start])));
                Ok(true)
            });
        }
    }
}

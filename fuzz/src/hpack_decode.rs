//! Header blocks of a stranger, one after the other with the same table.
use nearcall_http::hpack::{Decoder, Encoder, Fields, Keep};

const LIMIT: usize = 2000;
/// What the vectors of a short list may have beyond their bytes.
const ROOM: usize = 64 << 10;

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(input: &[u8]) {
    let (mut decoder, mut fields) = (Decoder::default(), Fields::new(LIMIT));
    let (mut encoder, mut again, mut copy) = (Encoder::default(), Decoder::default(), Fields::new(LIMIT));
    let mut rest = input;
    while let Some((&len, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(usize::from(len)));
        rest = after;
        if decoder.decode(block, &mut fields).is_err() {
            return;
        }
        assert!(decoder.held() <= 4096);
        assert!(fields.held() <= LIMIT + ROOM);
        let list: Vec<_> = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        assert!(list.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>() <= LIMIT);
        // What is read is what is written.
        let mut out = Vec::new();
        encoder.set_limit(usize::from(len) * 16);
        encoder.begin(&mut out);
        let mut written = Vec::new();
        for (at, (name, value)) in list.iter().enumerate() {
            let Ok(text) = std::str::from_utf8(name) else { continue };
            encoder.field(&mut out, text, value, [Keep::Yes, Keep::No, Keep::Never][at % 3]);
            written.push((name.clone(), value.clone()));
        }
        again.decode(&out, &mut copy).expect("it is our own");
        assert_eq!(copy.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>(), written);
        assert_eq!(again.held(), encoder.held());
    }
}

//! What a program of RMR sends: whatever comes of it lies within it, is the same however it is cut, and is read again once
//! it is written.
use nearcall_route::rmr::Reader;
use nearcall_route::rmr::frame::{ENTITY, Frame, SOURCE, TRANSACTION};

const LONGEST: usize = 1 << 16;

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(input: &[u8]) {
    let [cut, input @ ..] = input else { return };
    let whole = read(input, input.len().max(1));
    assert_eq!(whole, read(input, usize::from(*cut) + 1));
    for bytes in &whole.0 {
        look(bytes);
    }
}

/// The messages in the bytes, and whether they end with something wrong.
fn read(input: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let mut reader = Reader::new(LONGEST);
    let mut frames = Vec::new();
    for piece in input.chunks(piece) {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame.bytes().to_vec()),
                Ok(None) => break,
                Err(problem) => {
                    assert!(!problem.to_string().is_empty());
                    return (frames, true);
                }
            }
        }
        assert!(reader.unread() <= LONGEST + piece.len());
    }
    (frames, false)
}

fn look(bytes: &[u8]) {
    let frame = Frame::read(bytes).expect("it was read before");
    assert_eq!(&bytes[frame.payload_begins()..][..frame.payload().len()], frame.payload());
    let fields = frame.fields();
    assert!(fields.transaction.len() <= TRANSACTION && fields.entity.len() <= ENTITY);
    assert!(fields.source.len() <= SOURCE && fields.source_address.len() <= SOURCE);
    let mut written = Vec::new();
    fields.write(frame.payload().len(), &mut |bytes| written.extend_from_slice(bytes));
    written.extend_from_slice(frame.payload());
    let again = Frame::read(&written).expect("what is written can be read");
    assert_eq!(again.payload(), frame.payload());
    assert_eq!((again.kind(), again.subscription(), again.call()), (frame.kind(), frame.subscription(), frame.call()));
    assert_eq!((again.source(), again.entity(), again.trace()), (frame.source(), frame.entity(), frame.trace()));
}

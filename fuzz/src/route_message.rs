//! The heads of the router's messages: any bytes give a head or an error, and what was read is read again when it is sent on.
use nearcall_route::{Head, Heads};

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(bytes: &[u8]) {
    let payload = bytes.into();
    let Ok(head) = Head::read(&payload) else { return };
    let (source, address) = (head.source(&payload), head.address(&payload));
    let envelope = head.envelope(&payload);
    assert_eq!(envelope.call, 0, "nodes tell each other of no call of RMR");
    let mut again = Vec::new();
    let heads = Heads::new(source, address).expect("what is too long is refused");
    heads.encode(&mut again, &envelope, bytes.len() - head.begin()).expect("and so is the rest");
    again.extend_from_slice(&bytes[head.begin()..]);
    let sent = again.as_slice().into();
    let same = Head::read(&sent).expect("what was encoded is sound");
    assert_eq!(same.envelope(&sent), envelope);
    assert_eq!((same.source(&sent), same.address(&sent)), (source, address));
    assert_eq!((same.transaction(&sent), same.entity(&sent)), (envelope.transaction, envelope.entity));
    assert_eq!(same.trace(&sent), envelope.trace);
    assert_eq!(&again[same.begin()..], &bytes[head.begin()..], "the payload is the same");
}

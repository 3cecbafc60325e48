//! A Protobuf message: its fields, those of the messages in it, and its packed numbers; and a status.
use nearcall_wire::protobuf::{Fields, MAX_DEPTH, Scalar, Wire, Writer, packed};
use nearcall_wire::rpc_status;

const SCALARS: [Scalar; 14] = [
    Scalar::Bool,
    Scalar::Int32,
    Scalar::Int64,
    Scalar::Uint32,
    Scalar::Uint64,
    Scalar::Sint32,
    Scalar::Sint64,
    Scalar::Fixed32,
    Scalar::Fixed64,
    Scalar::Sfixed32,
    Scalar::Sfixed64,
    Scalar::Float,
    Scalar::Double,
    Scalar::Enum,
];

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(bytes: &[u8]) {
    look(bytes, 0);
    for scalar in SCALARS {
        let mut rest = bytes;
        while !rest.is_empty() && packed(scalar, &mut rest).is_ok() {}
    }
    if let Ok(failure) = rpc_status::decode(bytes)
        && let Some(again) = rpc_status::encode(&failure)
    {
        assert_eq!(rpc_status::decode(&again), Ok(failure));
    }
}

/// Reads all fields, and writes them again: read once more they are the same.
fn look(bytes: &[u8], depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    let (mut fields, mut out, mut found) = (Fields::of(bytes), Writer::default(), Vec::new());
    while let Ok(Some((number, wire))) = fields.next() {
        assert!(number > 0);
        found.push((number, wire));
        for scalar in SCALARS {
            let _ = scalar.number(wire);
        }
        match wire {
            Wire::Varint(value) => {
                out.tag(number, 0);
                out.varint(value);
            }
            Wire::Fixed64(value) => {
                out.tag(number, 1);
                out.raw(&value.to_le_bytes());
            }
            Wire::Fixed32(value) => {
                out.tag(number, 5);
                out.raw(&value.to_le_bytes());
            }
            Wire::Bytes(inner) => {
                look(inner, depth + 1);
                out.bytes_tag(number);
                let begin = out.open();
                out.raw(inner);
                out.close(begin);
            }
        }
    }
    let out = out.into_bytes();
    let mut again = Fields::of(&out);
    for field in found {
        assert_eq!(again.next(), Ok(Some(field)));
    }
    assert_eq!(again.next(), Ok(None));
}

//! Writes header blocks.

use super::table::{STATIC, Table};

/// The largest table that this side uses, whatever the peer offers.
const MAX_TABLE_SIZE: usize = 4096;

/// The writing side of one connection's header compression.
///
/// Strings are never Huffman-coded: a field that repeats is sent as an index after the first time, and for others the
/// time costs more than the bytes.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// The smallest and the last limit that the peer has set since the last block. The next block must announce them.
    announce: Option<(usize, usize)>,
}

/// Whether to keep a field in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Yes: the field will occur again.
    Yes,
    /// No: the field may not occur again.
    No,
    /// No, and proxies must not keep it either: the field is a secret.
    Never,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { table: Table::new(MAX_TABLE_SIZE), announce: None }
    }
}

impl Encoder {
    /// The peer's `SETTINGS_HEADER_TABLE_SIZE`.
    pub fn set_limit(&mut self, limit: usize) {
        let limit = limit.min(MAX_TABLE_SIZE);
        let smallest = self.announce.map_or(self.table.limit(), |(smallest, _)| smallest);
        if limit != self.table.limit() {
            self.announce = Some((smallest.min(limit), limit));
            self.table.set_limit(limit);
        }
    }

    /// To be called once before the fields of each block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some((smallest, last)) = self.announce.take() {
            if smallest < last {
                integer(out, 0x20, 5, smallest);
            }
            integer(out, 0x20, 5, last);
        }
    }

    /// Appends one field.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &str, value: &[u8], keep: Keep) {
        let (name, known) = (name.as_bytes(), known(name));
        if keep == Keep::Yes {
            if let Some(index) = self.table.find(name, value) {
                return integer(out, 0x80, 7, index);
            }
            if let Some(index) = known.filter(|&index| STATIC[index - 1].1.as_bytes() == value) {
                return integer(out, 0x80, 7, index);
            }
        }
        // A large field would evict all others.
        let keep = if keep == Keep::Yes && name.len() + value.len() > MAX_TABLE_SIZE / 8 { Keep::No } else { keep };
        let (first, bits) = match keep {
            Keep::Yes => (0x40, 6),
            Keep::No => (0x00, 4),
            Keep::Never => (0x10, 4),
        };
        integer(out, first, bits, known.unwrap_or(0));
        if known.is_none() {
            integer(out, 0, 7, name.len());
            out.extend_from_slice(name);
        }
        integer(out, 0, 7, value.len());
        out.extend_from_slice(value);
        if keep == Keep::Yes {
            self.table.insert(&[name, value].concat(), name.len());
        }
    }

    /// Bytes of memory that the table takes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.table.size()
    }
}

/// The index of the first static entry with this name, for the names that this crate uses.
fn known(name: &str) -> Option<usize> {
    Some(match name {
        ":authority" => 1,
        ":method" => 3,
        ":path" => 4,
        ":scheme" => 6,
        ":status" => 8,
        "accept-encoding" => 16,
        "authorization" => 23,
        "content-length" => 28,
        "content-type" => 31,
        "cookie" => 32,
        "user-agent" => 58,
        _ => return None,
    })
}

fn integer(out: &mut Vec<u8>, first: u8, bits: u8, value: usize) {
    let mask = (1usize << bits) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, Fields};
    use super::*;

    #[test]
    fn what_is_written_is_read_the_second_time_shorter() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let (mut fields, mut lengths) = (Fields::new(1 << 16), Vec::new());
        let long = "x".repeat(5000);
        let all = [
            (":status", "200", Keep::Yes),
            ("content-type", "application/grpc", Keep::Yes),
            ("authorization", "secret", Keep::Never),
            ("once", "only", Keep::No),
            ("long", &long, Keep::Yes),
        ];
        for limit in [4096, 4096, 0, 100, 4096, 1 << 20] {
            encoder.set_limit(limit);
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value, keep) in all {
                encoder.field(&mut block, name, value.as_bytes(), keep);
            }
            decoder.decode(&block, &mut fields).unwrap();
            let read: Vec<_> = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            let sent = all.iter().map(|(name, value, _)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
            assert_eq!(read, sent.collect::<Vec<_>>());
            assert_eq!(encoder.held(), decoder.held());
            lengths.push(block.len());
        }
        assert!(lengths[1] + 16 < lengths[0], "{lengths:?}");
    }

    #[test]
    fn a_limit_that_fell_and_rose_is_announced_twice() {
        let mut encoder = Encoder::default();
        encoder.set_limit(0);
        encoder.set_limit(64);
        let mut block = Vec::new();
        encoder.begin(&mut block);
        assert_eq!(block, [0x20, 0x3f, 33]);
        block.clear();
        encoder.begin(&mut block);
        assert!(block.is_empty());
    }

    #[test]
    fn static_entries_are_where_they_are_said_to_be() {
        for (name, _) in STATIC {
            if let Some(index) = known(name) {
                assert_eq!(STATIC[index - 1].0, name);
            }
        }
    }
}

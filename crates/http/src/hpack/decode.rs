//! Reads header blocks (RFC 7541, sections 3, 5 and 6).

use super::table::Table;
use super::{Fields, Malformed, huffman};

/// The largest table that this side offers: the default, so that no setting is needed.
pub(crate) const TABLE_SIZE: usize = 4096;

/// The reading side of one connection's header compression.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_SIZE) }
    }
}

impl Decoder {
    /// Reads a whole header block into `fields`, which is cleared first. Fields beyond its limit are decoded, because
    /// the table depends on them, but not kept.
    ///
    /// # Errors
    /// The block is malformed. The table is then unknown, so the connection has to end.
    pub fn decode(&mut self, mut block: &[u8], fields: &mut Fields) -> Result<(), Malformed> {
        const INDEX: Malformed = Malformed("a header block names an entry that is in no table");
        fields.clear();
        let mut may_resize = true;
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                let (name, value) = self.table.get(index).ok_or(INDEX)?;
                fields.push(name, value);
            } else if first & 0xe0 == 0x20 {
                let limit = integer(&mut block, 5)?;
                if !may_resize || limit > TABLE_SIZE {
                    return Err(Malformed("a header block resizes the table where or further than it may"));
                }
                self.table.set_limit(limit);
                continue;
            } else {
                let is_kept = first & 0x40 != 0;
                let index = integer(&mut block, if is_kept { 6 } else { 4 })?;
                let from = fields.end();
                if index == 0 {
                    string(&mut block, fields.tail())?;
                } else {
                    let (name, _) = self.table.get(index).ok_or(INDEX)?;
                    fields.tail().extend_from_slice(name);
                }
                let name = fields.end() - from;
                string(&mut block, fields.tail())?;
                if is_kept {
                    self.table.insert(&fields.tail()[from..], name);
                }
                fields.complete(from, name);
            }
            may_resize = false;
        }
        Ok(())
    }

    /// Bytes of memory that the table takes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.table.size()
    }
}

/// Reads an integer whose first octet holds `bits` bits of it.
fn integer(bytes: &mut &[u8], bits: u8) -> Result<usize, Malformed> {
    const SHORT: Malformed = Malformed("a header block ends inside a number");
    let mask = (1usize << bits) - 1;
    let mut next = || -> Result<usize, Malformed> {
        let (&octet, rest) = bytes.split_first().ok_or(SHORT)?;
        *bytes = rest;
        Ok(usize::from(octet))
    };
    let mut value = next()? & mask;
    if value < mask {
        return Ok(value);
    }
    // Four more octets hold 28 bits: more than any sensible length or index.
    for shift in [0, 7, 14, 21] {
        let octet = next()?;
        value += (octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed("a header block has a number that is too large"))
}

/// Reads a string and appends it to `out`.
fn string(bytes: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    const SHORT: Malformed = Malformed("a header block ends inside a string");
    let is_coded = bytes.first().ok_or(SHORT)? & 0x80 != 0;
    let len = integer(bytes, 7)?;
    let (string, rest) = bytes.split_at_checked(len).ok_or(SHORT)?;
    *bytes = rest;
    if is_coded {
        return huffman::decode(string, out);
    }
    out.extend_from_slice(string);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn read(decoder: &mut Decoder, block: &str) -> Vec<(String, String)> {
        let mut fields = Fields::new(1 << 16);
        decoder.decode(&hex(block), &mut fields).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        fields.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn the_requests_of_the_specification_plain_and_coded() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let coded = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::default();
            assert_eq!(read(&mut decoder, blocks[0])[3], (":authority".into(), "www.example.com".into()));
            assert_eq!(read(&mut decoder, blocks[1])[4], ("cache-control".into(), "no-cache".into()));
            let third = read(&mut decoder, blocks[2]);
            assert_eq!(third[2], (":path".into(), "/index.html".into()));
            assert_eq!(third[4], ("custom-key".into(), "custom-value".into()));
            assert_eq!(decoder.held(), 164, "RFC 7541, C.3.3 and C.4.3");
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for bad in [
            "80",
            "be",
            "ff ff ff ff ff 7f",
            "ff",
            "40",
            "40 05 61",
            "40 01 61 05 62",
            "3f e2 1f",
            "82 20",
            "00 85 ff",
            "7f ff ff ff ff ff 0f",
        ] {
            let mut fields = Fields::new(1 << 16);
            assert!(Decoder::default().decode(&hex(bad), &mut fields).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_table_may_be_made_smaller_and_larger_at_the_start_of_a_block() {
        let mut decoder = Decoder::default();
        read(&mut decoder, "40 01 61 01 62");
        assert_eq!(decoder.held(), 34);
        read(&mut decoder, "20 3f e1 1f 82");
        assert_eq!(decoder.held(), 0);
        read(&mut decoder, "40 01 61 01 62");
        assert_eq!(decoder.held(), 34);
    }

    #[test]
    fn a_bomb_is_read_but_not_kept() {
        let mut decoder = Decoder::default();
        let mut fields = Fields::new(8192);
        // One entry of 3,900 bytes, named ten thousand times.
        let mut block = vec![0x40, 1, b'a', 0x7f];
        block.extend_from_slice(&[0xbd, 0x1d]);
        block.extend(std::iter::repeat_n(b'x', 3900));
        block.extend(std::iter::repeat_n(0xbe, 10_000));
        decoder.decode(&block, &mut fields).unwrap();
        assert!(fields.is_over());
        assert!(fields.held() < 16 << 10, "{}", fields.held());
    }
}

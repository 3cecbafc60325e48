//! The Huffman code of HPACK (RFC 7541, appendix B), for reading.
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols. So the lengths define it.

use super::Malformed;

/// The length in bits of each octet's code. The last one is for the end of the string, which never occurs.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];
const END: u16 = 256;
const LONGEST: usize = 30;
/// Codes up to this many bits are found by one look-up: those of all common characters.
const QUICK: usize = 9;

struct Tables {
    /// By the next [`QUICK`] bits: the octet and the length of its code; 0 if the code is longer.
    quick: [(u8, u8); 1 << QUICK],
    /// By length: the code after the last one of that length, shifted to the top of 32 bits.
    ends: [u64; LONGEST + 1],
    /// By length: the first code, and the place of its symbol in `symbols`.
    firsts: [(u32, u16); LONGEST + 1],
    /// All symbols, ordered by length and value.
    symbols: [u16; 257],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        quick: [(0, 0); 1 << QUICK],
        ends: [0; LONGEST + 1],
        firsts: [(0, 0); LONGEST + 1],
        symbols: [0; 257],
    };
    let (mut code, mut placed, mut bits) = (0u32, 0, 1);
    while bits <= LONGEST {
        code <<= 1;
        tables.firsts[bits] = (code, placed as u16);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == bits {
                tables.symbols[placed] = symbol as u16;
                placed += 1;
                if bits <= QUICK {
                    let spare = QUICK - bits;
                    let mut one = 0;
                    while one < 1 << spare {
                        tables.quick[((code as usize) << spare) + one] = (symbol as u8, bits as u8);
                        one += 1;
                    }
                }
                code += 1;
            }
            symbol += 1;
        }
        tables.ends[bits] = (code as u64) << (32 - bits);
        bits += 1;
    }
    tables
}

/// Appends the decoded string to `out`.
///
/// # Errors
/// The end-of-string code, or padding that does not begin like it or is longer than seven bits.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    const BAD: Malformed = Malformed("a string in a header block is not coded as HPACK says");
    // No code has fewer than 5 bits.
    out.reserve(coded.len() * 8 / 5);
    let (mut window, mut bits) = (0u64, 0usize);
    let mut rest = coded.iter();
    loop {
        while bits <= 56 {
            let Some(&octet) = rest.next() else { break };
            window |= u64::from(octet) << (56 - bits);
            bits += 8;
        }
        if bits == 0 {
            return Ok(());
        }
        let (octet, len) = TABLES.quick[(window >> (64 - QUICK)) as usize];
        let (symbol, len) = if len > 0 { (u16::from(octet), usize::from(len)) } else { long(window >> 32) };
        if len > bits {
            // The rest must be the first bits of the end-of-string code, which are all ones.
            let is_padding = bits < 8 && window >> (64 - bits) == (1 << bits) - 1;
            return if is_padding { Ok(()) } else { Err(BAD) };
        }
        if symbol == END {
            return Err(BAD);
        }
        out.push(symbol as u8);
        window <<= len;
        bits -= len;
    }
}

/// The symbol at the top of 32 bits, and the length of its code, which is longer than [`QUICK`].
fn long(top: u64) -> (u16, usize) {
    let bits = (QUICK + 1..LONGEST).find(|&bits| top < TABLES.ends[bits]).unwrap_or(LONGEST);
    let (first, place) = TABLES.firsts[bits];
    let code = (top >> (32 - bits)) as u32;
    (TABLES.symbols[usize::from(place) + (code - first) as usize], bits)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn encoded(plain: &[u8]) -> Vec<u8> {
        let mut bits = String::new();
        for &octet in plain {
            let len = usize::from(LENGTHS[usize::from(octet)]);
            let (first, place) = TABLES.firsts[len];
            let nth = TABLES.symbols[usize::from(place)..].iter().position(|&one| one == u16::from(octet)).unwrap();
            write!(bits, "{:0len$b}", first as usize + nth).unwrap();
        }
        while !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        bits.as_bytes()
            .chunks(8)
            .map(|octet| u8::from_str_radix(std::str::from_utf8(octet).unwrap(), 2).unwrap())
            .collect()
    }

    #[test]
    fn the_examples_of_the_specification() {
        let coded = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(encoded(b"www.example.com"), coded, "RFC 7541, C.4.1");
        let mut out = Vec::new();
        decode(&coded, &mut out).unwrap();
        assert_eq!(out, b"www.example.com");
    }

    #[test]
    fn every_octet_goes_there_and_back() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for from in 0..all.len() {
            let mut out = Vec::new();
            decode(&encoded(&all[from..]), &mut out).unwrap();
            assert_eq!(out, all[from..]);
        }
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        for bad in [&[0xff, 0xff, 0xff, 0xff][..], &[0xff], &[0x18], &[0x07, 0xff], &[0xff, 0xff, 0xff, 0xfc]] {
            assert!(decode(bad, &mut Vec::new()).is_err(), "{bad:x?}");
        }
        // 'a' has the code 00011; three ones fill the octet.
        assert!(decode(&[0x1f], &mut Vec::new()).is_ok());
    }
}

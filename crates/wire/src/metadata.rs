//! Metadata: an ordered list of keys and values beside the payload.

use crate::malformed::Malformed;

/// Ordered pairs. A key may occur more than once, as in gRPC.
///
/// ```text
/// u32 length of what follows | ( u16 length, key, UTF-8 | u32 length, value )*
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata(Vec<(String, Vec<u8>)>);

/// The most bytes that the metadata of a frame may have.
const MOST_BYTES: usize = 1 << 20;

/// The least memory of one allocation, for common allocators.
const SMALLEST: usize = 32;

fn allocated(len: usize) -> usize {
    if len == 0 { 0 } else { len.max(SMALLEST) }
}

impl Metadata {
    /// The most pairs that a frame may carry. Each costs its receiver much more memory than its bytes.
    pub const MOST_PAIRS: usize = 4096;

    /// Appends a pair.
    pub fn push(&mut self, key: &str, value: &[u8]) {
        self.0.push((key.to_owned(), value.to_vec()));
    }

    /// The pairs in order.
    #[must_use]
    pub fn pairs(&self) -> &[(String, Vec<u8>)] {
        &self.0
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of memory that the pairs take. Short pairs take many times as much as on the wire.
    #[must_use]
    pub fn held(&self) -> usize {
        let texts: usize = self.0.iter().map(|(key, value)| allocated(key.len()) + allocated(value.len())).sum();
        self.0.capacity() * size_of::<(String, Vec<u8>)>() + texts
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let len: usize = self.0.iter().map(|(key, value)| 6 + key.len() + value.len()).sum();
        out.extend_from_slice(&(len as u32).to_le_bytes());
        for (key, value) in &self.0 {
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        const SHORT: Malformed = Malformed("metadata is longer than its frame");
        let (len, rest) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
        let (mut pairs, after) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(SHORT)?;
        if pairs.len() > MOST_BYTES {
            return Err(Malformed("the metadata of a frame has more than 1 MiB"));
        }
        let mut this = Self::default();
        while !pairs.is_empty() {
            let (len, rest) = pairs.split_first_chunk::<2>().ok_or(SHORT)?;
            let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*len) as usize).ok_or(SHORT)?;
            let (len, rest) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
            let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(SHORT)?;
            let key = std::str::from_utf8(key).map_err(|_| Malformed("a metadata key is not UTF-8"))?;
            if this.0.len() == Self::MOST_PAIRS {
                return Err(Malformed("the metadata of a frame has more than 4096 entries"));
            }
            this.push(key, value);
            pairs = rest;
        }
        Ok((this, after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cheap_to_send_and_dear_to_keep_is_refused() {
        let encoded = |pairs: usize, value: usize| {
            let mut metadata = Metadata::default();
            (0..pairs).for_each(|_| metadata.push("", &vec![0; value]));
            let mut out = Vec::new();
            metadata.encode(&mut out);
            out
        };
        assert!(Metadata::decode(&encoded(Metadata::MOST_PAIRS, 0)).is_ok());
        assert!(Metadata::decode(&encoded(Metadata::MOST_PAIRS + 1, 0)).is_err());
        assert!(Metadata::decode(&encoded(1, MOST_BYTES)).is_err());
    }
}

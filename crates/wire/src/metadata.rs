//! Metadata: an ordered list of keys and values beside the payload.

use crate::malformed::Malformed;

/// Ordered pairs; a key may come more than once, as in gRPC.
///
/// ```text
/// u32 length of what follows | ( u16 length, key, UTF-8 | u32 length, value )*
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata(Vec<(String, Vec<u8>)>);

impl Metadata {
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
        let mut this = Self::default();
        while !pairs.is_empty() {
            let (len, rest) = pairs.split_first_chunk::<2>().ok_or(SHORT)?;
            let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*len) as usize).ok_or(SHORT)?;
            let (len, rest) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
            let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(SHORT)?;
            let key = std::str::from_utf8(key).map_err(|_| Malformed("a metadata key is not UTF-8"))?;
            this.push(key, value);
            pairs = rest;
        }
        Ok((this, after))
    }
}

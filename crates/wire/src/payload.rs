//! A payload with buffers: a body in the codec's encoding, then raw buffers, end to end.

use crate::malformed::Malformed;

/// Most buffers one message may carry.
const MAX_BUFFERS: usize = 65_536;

/// The lengths of a payload's buffers. Everything in front of the buffers is the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsTable(Vec<u64>);

impl PartsTable {
    /// The table for buffers of these lengths.
    #[must_use]
    pub fn of(lengths: &[usize]) -> Self {
        Self(lengths.iter().map(|&len| len as u64).collect())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.0.len() as u32).to_le_bytes());
        for len in &self.0 {
            out.extend_from_slice(&len.to_le_bytes());
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        const SHORT: Malformed = Malformed("the table of a frame's buffers is longer than the frame");
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
        let count = u32::from_le_bytes(*count) as usize;
        if count > MAX_BUFFERS {
            return Err(Malformed("a frame has more than 65536 buffers"));
        }
        let (table, after) = rest.split_at_checked(count * 8).ok_or(SHORT)?;
        let lengths = table.chunks_exact(8).map(|len| u64::from_le_bytes(len.try_into().expect("8 bytes"))).collect();
        Ok((Self(lengths), after))
    }

    /// Makes sure that the buffers fit into a payload of `len` bytes.
    ///
    /// # Errors
    /// [`Malformed`] if they are longer.
    pub fn check(&self, len: usize) -> Result<(), Malformed> {
        self.body_len(len).map(drop)
    }

    fn body_len(&self, len: usize) -> Result<usize, Malformed> {
        const LONG: Malformed = Malformed("a frame's buffers are longer than the frame");
        let total = self.0.iter().try_fold(0_u64, |total, len| total.checked_add(*len)).ok_or(LONG)?;
        usize::try_from(total).ok().and_then(|total| len.checked_sub(total)).ok_or(LONG)
    }

    /// Length of the body, then offset and length of each buffer, in a payload of `len` bytes.
    ///
    /// # Errors
    /// [`Malformed`] if the buffers are longer than the payload.
    pub fn ranges(&self, len: usize) -> Result<(usize, Vec<(usize, usize)>), Malformed> {
        let body = self.body_len(len)?;
        let mut at = body;
        let mut buffers = Vec::with_capacity(self.0.len());
        for len in &self.0 {
            buffers.push((at, *len as usize));
            at += *len as usize;
        }
        Ok((body, buffers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_divides_into_body_and_buffers() {
        let parts = PartsTable::of(&[2, 0, 3]);
        assert_eq!(parts.ranges(b"bodyAABBB".len()), Ok((4, vec![(4, 2), (6, 0), (6, 3)])));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        assert!(PartsTable::of(&[5]).ranges(4).is_err());
        assert!(PartsTable(vec![u64::MAX, 2]).ranges(4).is_err());
    }
}

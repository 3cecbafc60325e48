//! The fields of one header block, in one piece of memory that is used again.

use super::OVERHEAD;

/// Names and values in order, at most as many bytes as a limit says.
#[derive(Debug)]
pub struct Fields {
    bytes: Vec<u8>,
    /// Of each field: where its name starts, where its value starts, where it ends.
    places: Vec<(u32, u32, u32)>,
    /// As RFC 9113 counts for `SETTINGS_MAX_HEADER_LIST_SIZE`.
    size: usize,
    limit: usize,
}

impl Fields {
    /// None yet, and a limit in bytes, 32 more for each field.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), places: Vec::new(), size: 0, limit }
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|&(name, value, end)| {
            let (name, value, end) = (name as usize, value as usize, end as usize);
            (&self.bytes[name..value], &self.bytes[value..end])
        })
    }

    /// The first value of a name.
    #[must_use]
    pub fn get(&self, wanted: &str) -> Option<&[u8]> {
        self.iter().find(|(name, _)| *name == wanted.as_bytes()).map(|(_, value)| value)
    }

    /// Whether there were more than the limit allows; those are not here.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.size > self.limit
    }

    /// Bytes it keeps.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<(u32, u32, u32)>()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.size = 0;
        // One large block must not make every connection large for good.
        if self.held() > 16 << 10 {
            self.bytes = Vec::new();
            self.places = Vec::new();
        }
    }

    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        let from = self.bytes.len();
        if self.size + name.len() + value.len() + OVERHEAD <= self.limit {
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value);
            self.complete(from, name.len());
        } else {
            self.size = usize::MAX / 2;
        }
    }

    /// Where a decoder appends a name and a value; then it says [`Fields::complete`].
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// What was appended since `from` is a field whose name has `name` bytes.
    pub(super) fn complete(&mut self, from: usize, name: usize) {
        let end = self.bytes.len();
        self.size += end - from + OVERHEAD;
        if self.is_over() {
            self.size = usize::MAX / 2;
            return self.bytes.truncate(from);
        }
        self.places.push((from as u32, (from + name) as u32, end as u32));
    }
}

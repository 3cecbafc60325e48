//! The fields of one header block, in memory that is used again.

use super::OVERHEAD;

/// Names and values in order, up to a limit in bytes.
#[derive(Debug)]
pub struct Fields {
    bytes: Vec<u8>,
    /// For each field: where its name starts, where its value starts, where it ends.
    places: Vec<(u32, u32, u32)>,
    /// The size as RFC 9113 counts it for `SETTINGS_MAX_HEADER_LIST_SIZE`.
    size: usize,
    limit: usize,
}

impl Fields {
    /// An empty list. `limit` is in bytes, and counts 32 more for each field.
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

    /// Whether there were more fields than the limit allows. Those were not kept.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.size > self.limit
    }

    /// The size as RFC 9113 counts it, with the fields that were not kept.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of memory that the list takes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<(u32, u32, u32)>()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.size = 0;
        // One large block must not make the memory of a connection large for good.
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

    /// Where a decoder appends a name and a value. It calls [`Fields::complete`] afterwards.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Makes a field of the bytes since `from`; its name has `name` bytes.
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

//! The static table and the dynamic one (RFC 7541, sections 2.3 and 4).

use std::collections::VecDeque;

/// What the specification adds for each entry to the lengths of name and value.
pub(crate) const OVERHEAD: usize = 32;

/// RFC 7541, appendix A: indices 1 to 61.
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// A dynamic table. Its newest entry has the index 62.
#[derive(Debug)]
pub(super) struct Table {
    /// Name and value end to end, and the length of the name. The newest entry comes first.
    entries: VecDeque<(Box<[u8]>, usize)>,
    size: usize,
    limit: usize,
}

impl Table {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, limit }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The size of the table as the specification counts it, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.make_room(0);
    }

    fn make_room(&mut self, wanted: usize) {
        while self.size + wanted > self.limit {
            let Some((oldest, _)) = self.entries.pop_back() else { return };
            self.size -= oldest.len() + OVERHEAD;
        }
    }

    /// Adds an entry: `pair` is a name of `name` bytes and its value. An entry larger than the table empties it.
    pub(super) fn insert(&mut self, pair: &[u8], name: usize) {
        let cost = pair.len() + OVERHEAD;
        self.make_room(cost);
        if cost <= self.limit {
            self.entries.push_front((pair.into(), name));
            self.size += cost;
        }
    }

    /// Name and value at an index, which counts through both tables.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let Some(dynamic) = index.checked_sub(STATIC.len() + 1) else {
            let (name, value) = STATIC.get(index.checked_sub(1)?)?;
            return Some((name.as_bytes(), value.as_bytes()));
        };
        let (pair, name) = self.entries.get(dynamic)?;
        Some(pair.split_at(*name))
    }

    /// The index of a dynamic entry with this name and value.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<usize> {
        let is_it = |(pair, len): &(Box<[u8]>, usize)| {
            *len == name.len()
                && pair.len() == name.len() + value.len()
                && pair.ends_with(value)
                && pair.starts_with(name)
        };
        self.entries.iter().position(is_it).map(|at| STATIC.len() + 1 + at)
    }
}

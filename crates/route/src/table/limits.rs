//! How much a table may hold. Its text is pushed over the network: without these a peer could fill the memory.

/// Bytes of a table in RMR's text.
pub(super) const MAX_TEXT: usize = 64 << 20;
/// Bytes of a table in TOML. Its values take twenty times the memory while they are read, and people write it.
pub(super) const MAX_TOML: usize = 8 << 20;
/// Entries, counted for each sender.
pub(super) const MAX_ENTRIES: usize = 1 << 18;
/// Members of all groups of all entries.
pub(super) const MAX_MEMBERS: usize = 1 << 22;
/// Different endpoints.
pub(super) const MAX_ENDPOINTS: usize = 65_536;
/// Managed entities that have an owner.
pub(super) const MAX_ENTITIES: usize = 1 << 18;
/// Senders of one record; RMR looks at as many.
pub(super) const MAX_SENDERS: usize = 126;
/// Bytes of an endpoint.
pub(super) const MAX_ENDPOINT: usize = 512;
/// Bytes of a sender's `host:port`: as much of a source as a message of RMR has room for.
pub(super) const MAX_SOURCE: usize = 63;
/// Bytes of a managed entity's name: as many as a message of RMR has room for.
pub(super) const MAX_ENTITY: usize = 31;
/// Bytes of a table's id.
pub(super) const MAX_ID: usize = 255;

//! `crates/core/src/server/threads`

#[path = "../../../core/src/server/threads/crew.rs"]
pub(crate) mod crew;
#[path = "../../../core/src/server/threads/leadership/mod.rs"]
pub(crate) mod leadership;
#[path = "../../../core/src/server/threads/places.rs"]
mod places;

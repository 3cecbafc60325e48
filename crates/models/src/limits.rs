//! `crates/transport/src/limits`

#[path = "../../transport/src/limits/budget/mod.rs"]
pub mod budget;

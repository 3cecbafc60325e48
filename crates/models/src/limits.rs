//! `crates/transport/src/limits`

#[path = "../../transport/src/limits/budget.rs"]
pub mod budget;

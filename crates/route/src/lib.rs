//! Messages that are routed by their type: the tables that say who gets which.
//!
//! A [`table::Table`] is read from RMR's text or from TOML, checked as a whole, and does not change after that: who replaces
//! one swaps it for another at once. `docs/routing-tables.md` describes both forms and every rule.

mod sync;
pub mod table;

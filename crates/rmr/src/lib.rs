//! `librmr_si.so`: the interface in C that programs for RMR are written for, over the parts that nodes of the router use.
//!
//! `include/rmr.h` declares it, and docs/rmr.md says what is the same as in RMR and what is not. Every function bears null
//! pointers; a panic ends at its border.
//!
//! - [`buffer`]: messages as programs hold them; [`fields`]: the functions that read and change these;
//! - [`settings`]: what the environment says; [`context`]: what `rmr_init` makes, with its threads; [`tables`]: where the
//!   tables come from; [`arrivals`]: messages that have come and wait;
//! - [`sending`] and [`receiving`]: the functions that use a context.

mod arrivals;
pub mod buffer;
mod calls;
mod context;
pub mod fields;
pub mod receiving;
pub mod sending;
mod settings;
mod sync;
mod tables;

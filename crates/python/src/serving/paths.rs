//! The paths by which clients name methods over HTTP, as Python gives them.

use nearcall_core::{Codec, Messages, Path};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The method of a path: `nearcall.server.entries.PathEntry`.
#[derive(FromPyObject)]
pub(super) struct PathEntry {
    number: u16,
    streams_in: bool,
    arguments_first: bool,
    streams_out: bool,
    no_side_effects: bool,
}

impl From<PathEntry> for Path {
    fn from(entry: PathEntry) -> Self {
        let messages = match (entry.streams_in, entry.arguments_first) {
            (false, _) => Messages::One,
            (true, false) => Messages::Stream,
            (true, true) => Messages::ArgumentsFirst,
        };
        Self { entry: entry.number, messages, streams_out: entry.streams_out, is_safe: entry.no_side_effects }
    }
}

/// The codec of that name.
pub(super) fn codec_of(name: &str) -> PyResult<Codec> {
    match name {
        "proto" => Ok(Codec::Proto),
        "json" => Ok(Codec::Json),
        "plain json" => Ok(Codec::PlainJson),
        _ => Err(PyValueError::new_err(format!("{name:?} is no codec"))),
    }
}

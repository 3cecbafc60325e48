//! The servers on this machine that have names.

use std::ffi::OsString;

use pyo3::prelude::*;

/// The directory where `shm://` finds servers of this user, and their names.
#[pyfunction]
pub(crate) fn named_servers() -> PyResult<(OsString, Vec<String>)> {
    let (directory, names) = nearcall_core::named_servers()?;
    Ok((directory.into_os_string(), names))
}

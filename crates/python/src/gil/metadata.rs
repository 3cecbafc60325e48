//! Metadata becomes pairs in Python and back, and is read where Python cannot.

use nearcall_core::Metadata;
use nearcall_core::client::Pushback;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::gil::callback::Callback;

/// Metadata from a list of pairs of `str` and `bytes`.
pub(crate) fn metadata_from(pairs: &Bound<'_, PyAny>) -> PyResult<Metadata> {
    let mut metadata = Metadata::default();
    for pair in pairs.items()? {
        let (key, value) = pair?.extract::<(String, Vec<u8>)>()?;
        metadata.push(&key, &value);
    }
    Ok(metadata)
}

/// A list of pairs of `str` and `bytes` from metadata.
pub(crate) fn metadata_to<'py>(py: Python<'py>, metadata: &Metadata) -> Vec<(String, Bound<'py, PyBytes>)> {
    metadata.pairs().iter().map(|(key, value)| (key.clone(), PyBytes::new(py, value))).collect()
}

/// After how many seconds a server wants a failed call to be sent again, from the value of the metadata in which it says
/// so: infinitely many if it does not want it at all.
#[pyfunction]
pub(crate) fn pushback(value: &str) -> f64 {
    match Pushback::read(value.as_bytes()) {
        Pushback::After(pause) => pause.as_secs_f64(),
        Pushback::Never => f64::INFINITY,
    }
}

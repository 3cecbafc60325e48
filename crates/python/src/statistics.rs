//! What a server measures, as Python sees it.

use nearcall_core::server::{Counts, Snapshot};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// A snapshot as plain data; times in seconds, durations in nanoseconds.
pub(crate) fn to_python<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("seconds", snapshot.at.saturating_sub(snapshot.since) as f64 / 1e9)?;
    out.set_item("since", snapshot.since as f64 / 1e9)?;
    out.set_item("watchers", snapshot.watchers)?;
    out.set_item("connections", snapshot.connections)?;
    out.set_item("workers", snapshot.workers)?;
    out.set_item("idle_workers", snapshot.idle_workers)?;
    out.set_item("queued", snapshot.queued)?;
    out.set_item("in_flight", snapshot.in_flight)?;
    out.set_item("memory", snapshot.memory)?;
    out.set_item("max_memory", snapshot.max_memory)?;
    let methods: Vec<Bound<'py, PyDict>> =
        snapshot.methods.iter().map(|counts| method(py, counts)).collect::<PyResult<_>>()?;
    out.set_item("methods", PyList::new(py, methods)?)?;
    Ok(out)
}

fn method<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let ended: Vec<(usize, u64)> =
        counts.ended.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(code, &count)| (code, count)).collect();
    out.set_item("started", counts.started)?;
    out.set_item("ended", ended)?;
    out.set_item("items_in", counts.items_in)?;
    out.set_item("items_out", counts.items_out)?;
    out.set_item("bytes_in", counts.bytes_in)?;
    out.set_item("bytes_out", counts.bytes_out)?;
    out.set_item("latency_sum", counts.latency.sum())?;
    out.set_item("latency", counts.latency.buckets().collect::<Vec<_>>())?;
    Ok(out)
}

//! The identity of a peer, for Python.

use nearcall_core::Peer;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A peer's identity as a dictionary.
pub(crate) fn peer<'py>(py: Python<'py>, peer: &Peer) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    match peer {
        Peer::Local { pid, uid, gid } => {
            // 0: the system does not say. As the target of a signal, 0 would mean the whole group of processes.
            if *pid != 0 {
                out.set_item("pid", pid)?;
            }
            out.set_item("uid", uid)?;
            out.set_item("gid", gid)?;
        }
        Peer::Remote(address) => out.set_item("address", address.to_string())?,
        Peer::Beyond(broker) => out.set_item("broker", broker)?,
        Peer::Certified { address, subject, names } => {
            out.set_item("address", address.to_string())?;
            out.set_item("subject", subject)?;
            out.set_item("names", names)?;
        }
    }
    Ok(out)
}

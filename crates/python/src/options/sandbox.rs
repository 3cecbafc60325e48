//! Confines this process: takes a policy from Python, and returns the report as plain values.

use std::path::PathBuf;

use nearcall_sandbox::{Early, Error, LAYERS, Limits, Name, Network, PROC_FILES, Policy, Report, apply};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The fields of Python's `Policy` that the core knows, checked and made plain by `nearcall.sandbox`.
#[derive(FromPyObject)]
pub(crate) struct PlainPolicy {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    execute: Vec<PathBuf>,
    subprocesses: bool,
    /// `None` allows all ports.
    ports: Option<Vec<u16>>,
    unix_sockets: bool,
    abstract_sockets: bool,
    signals: bool,
    memory: Option<u64>,
    cpu_seconds: Option<u64>,
    cpu_share: Option<f64>,
    tasks: Option<u64>,
    open_files: Option<u64>,
    file_size: Option<u64>,
    environment: Vec<String>,
    descriptors: Vec<i32>,
    proc: Vec<String>,
    required: Vec<String>,
}

impl PlainPolicy {
    fn into_policy(self) -> Result<Policy, Error> {
        let name = |text: String| Name::of(&text).ok_or_else(|| Error::Policy(format!("requires {text:?}: no layer")));
        Ok(Policy {
            read: self.read,
            write: self.write,
            execute: self.execute,
            subprocesses: self.subprocesses,
            network: match self.ports {
                None => Network::All,
                Some(ports) if ports.is_empty() => Network::None,
                Some(ports) => Network::Ports(ports),
            },
            unix_sockets: self.unix_sockets,
            abstract_sockets: self.abstract_sockets,
            signals: self.signals,
            limits: Limits {
                memory: self.memory,
                cpu_seconds: self.cpu_seconds,
                cpu_share: self.cpu_share,
                tasks: self.tasks,
                open_files: self.open_files,
                file_size: self.file_size,
            },
            environment: self.environment,
            descriptors: self.descriptors,
            proc: self.proc,
            required: self.required.into_iter().map(name).collect::<Result<_, _>>()?,
        })
    }
}

/// Control groups that this process has begun to enter, so that [`confine`] need not wait for them.
#[pyclass(module = "nearcall._core")]
pub(crate) struct EarlyLimits(Option<Early>);

#[pymethods]
impl EarlyLimits {
    /// Begins to enter the control groups for these limits of a policy.
    #[new]
    #[pyo3(signature = (*, memory, cpu_share, tasks))]
    fn new(memory: Option<u64>, cpu_share: Option<f64>, tasks: Option<u64>) -> Self {
        Self(Some(Early::begin(Limits { memory, cpu_share, tasks, ..Limits::default() })))
    }
}

/// A layer's name, its state, and a sentence about that.
type Row = (&'static str, &'static str, String);

/// Confines this process for ever. Returns the state of each layer.
///
/// The interpreter is held all the time: a second thread would make confining fail anyway.
#[pyfunction]
#[pyo3(signature = (policy, early=None))]
pub(crate) fn confine(policy: PlainPolicy, early: Option<&Bound<'_, EarlyLimits>>) -> PyResult<Vec<Row>> {
    let begun = early.and_then(|early| early.borrow_mut().0.take());
    let applied: Result<Report, Error> = policy.into_policy().and_then(|policy| apply(&policy, begun));
    let report = applied.map_err(|why| PyRuntimeError::new_err(why.to_string()))?;
    let row = |layer: nearcall_sandbox::Layer| (layer.name.as_str(), layer.state.as_str(), layer.detail);
    Ok(report.layers.into_iter().map(row).collect())
}

/// Names of all layers, in the order in which they are applied, and the files of `/proc` that a policy may name.
#[pyfunction]
pub(crate) fn sandbox_names() -> (Vec<&'static str>, Vec<&'static str>) {
    (LAYERS.iter().map(|name| name.as_str()).collect(), PROC_FILES.to_vec())
}

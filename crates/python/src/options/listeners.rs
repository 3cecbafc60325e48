//! The sockets of a server, apart from the server: they are bound before a fork, and used after it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, Listener, Options, PassedSockets, Url};
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;

use crate::gil::errors::{invalid, raise};
use crate::gil::interpreter::detach;
use crate::options::common::trust;
use crate::options::login::Login;
use crate::options::tls::Tls;

/// Sockets that clients connect to.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Listeners {
    options: Options,
    bound: Mutex<Vec<Listener>>,
}

#[pymethods]
impl Listeners {
    #[new]
    #[pyo3(signature = (*, allow_plaintext, tls, nats, allow_users, allow_groups, sockets))]
    fn new(
        allow_plaintext: bool,
        tls: Option<Py<Tls>>,
        nats: Option<Py<Login>>,
        allow_users: Vec<u32>,
        allow_groups: Vec<u32>,
        sockets: Vec<i32>,
    ) -> Self {
        let mut options = Options::default();
        trust(&mut options, allow_plaintext, tls, nats, allow_users, allow_groups);
        // SAFETY: the caller gives up descriptors that are open and nobody else's.
        let owned = |socket| unsafe { OwnedFd::from_raw_fd(socket) };
        options.passed = PassedSockets::new(sockets.into_iter().map(owned).collect());
        Self { options, bound: Mutex::default() }
    }

    /// Listens at one more URL; returns it with the port the system chose.
    fn bind(&self, py: Python<'_>, url: &str) -> PyResult<String> {
        let url: Url = url.parse().map_err(|bad: nearcall_core::BadUrl| invalid(py, bad.to_string()))?;
        match detach(py, || Listener::bind(&url, &self.options)) {
            Ok(listener) => {
                let url = listener.url().to_string();
                self.bound.lock().push(listener);
                Ok(url)
            }
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                Err(raise(py, &Failure::new(Failure::ALREADY_EXISTS, error.to_string())))
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Err(invalid(py, error.to_string())),
            Err(error) => Err(PyOSError::new_err(error.to_string())),
        }
    }

    /// The addresses of the sockets that were passed and that no URL has used.
    fn left(&self) -> Vec<String> {
        self.options.passed.left()
    }

    /// The descriptors to poll for clients, in the order in which they were bound.
    fn filenos(&self) -> PyResult<Vec<i32>> {
        self.bound.lock().iter().map(|listener| Ok(listener.socket_fd()?.as_raw_fd())).collect()
    }

    /// Accepts the next client of the listener at `index`, for another process to serve. The descriptor belongs to the
    /// caller.
    fn accept(&self, index: usize) -> PyResult<Option<i32>> {
        let bound = self.bound.lock();
        let listener = bound.get(index).ok_or_else(|| PyIndexError::new_err("there is no such listener"))?;
        Ok(listener.accept_socket()?.map(IntoRawFd::into_raw_fd))
    }

    /// For a process that gets its clients from another process: closes the sockets, and takes the clients that arrive
    /// through `channels` instead, one channel for each listener. `returned` is an eventfd. All these descriptors
    /// belong to the listeners from now on.
    fn use_channels(&self, channels: Vec<i32>, returned: i32) -> PyResult<()> {
        // SAFETY: the caller gives up a descriptor that is open and nobody else's.
        let returned = Arc::new(unsafe { OwnedFd::from_raw_fd(returned) });
        let counterpart = |(listener, channel): (Listener, i32)| {
            // SAFETY: as above.
            let channel = unsafe { OwnedFd::from_raw_fd(channel) };
            listener.through(channel, Arc::clone(&returned))
        };
        let mut bound = self.bound.lock();
        *bound = std::mem::take(&mut *bound).into_iter().zip(channels).map(counterpart).collect::<io::Result<_>>()?;
        Ok(())
    }

    /// Closes the listeners that are left. Other servers can use the URLs that this process itself bound from now on.
    fn close(&self) {
        self.bound.lock().clear();
    }
}

impl Listeners {
    /// Takes all listeners; none is left here.
    pub(crate) fn take(&self) -> Vec<Listener> {
        std::mem::take(&mut *self.bound.lock())
    }
}

/// Ends this process when the other end of a socket is closed: `SIGTERM` at once, and by force after `patience`
/// seconds. The descriptor belongs to this function from now on.
#[pyfunction]
pub(crate) fn end_with(socket: i32, patience: f64) -> PyResult<()> {
    // SAFETY: the caller gives up a descriptor that is open and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    Ok(nearcall_core::end_with(socket, Duration::try_from_secs_f64(patience).ok())?)
}

/// Has the system kill this process when the thread ends that started it.
#[pyfunction]
pub(crate) fn die_with_starter() -> PyResult<()> {
    Ok(nearcall_core::die_with_starter()?)
}

//! Options of clients and servers, as keyword arguments.

use std::time::Duration;

use nearcall_core::client::RetryPolicy;
use nearcall_core::{Admission, Encoding, Options, Proxy, SpinPolicy};
use pyo3::prelude::*;

use crate::gil::errors::invalid;
use crate::options::login::Login;
use crate::options::tls::Tls;

/// Reads the options that clients and servers share, except those of [`trust`].
pub(crate) fn options(
    py: Python<'_>,
    spin: &Bound<'_, PyAny>,
    ring_size: usize,
    max_message_size: u64,
    handshake_timeout: f64,
    compression: Option<&str>,
) -> PyResult<Options> {
    let seconds = |name: &str, value: f64| {
        Duration::try_from_secs_f64(value)
            .map_err(|_| invalid(py, format!("{name} must be a number of seconds, zero or more, not {value}")))
    };
    let spin = match spin.extract::<f64>() {
        Ok(value) => SpinPolicy::Fixed(seconds("spin", value)?),
        Err(_) if spin.extract::<&str>().is_ok_and(|word| word == "auto") => SpinPolicy::Auto,
        Err(_) => {
            return Err(invalid(py, format!("spin must be \"auto\" or a number of seconds, not {}", spin.repr()?)));
        }
    };
    if !nearcall_core::is_ring_size(ring_size) {
        return Err(invalid(
            py,
            format!("ring_size must be a power of two from 4096 to 16777216 (bytes), not {ring_size}"),
        ));
    }
    Ok(Options {
        spin,
        ring_size,
        max_message: max_message_size,
        handshake: seconds("handshake_timeout", handshake_timeout)?,
        compression: compression.and_then(|name| Encoding::named(name.as_bytes())),
        ..Options::default()
    })
}

/// Sets which peers to trust: on other machines, and which users of this machine.
pub(crate) fn trust(
    options: &mut Options,
    allow_plaintext: bool,
    tls: Option<Py<Tls>>,
    nats: Option<Py<Login>>,
    allow_users: Vec<u32>,
    allow_groups: Vec<u32>,
) {
    options.allow_plaintext = allow_plaintext;
    options.tls = tls.map(|tls| tls.get().0.clone());
    options.nats = nats.map(|login| login.get().0.clone());
    options.admission = Admission { users: allow_users, groups: allow_groups };
}

/// Attempts, first and longest pause in seconds, the factor by which pauses grow, and status codes.
pub(crate) type Retried = (u32, f64, f64, f64, Vec<u8>);

/// Which calls are sent again.
pub(crate) fn retry_policy(py: Python<'_>, retry: Retried) -> PyResult<RetryPolicy> {
    let (attempts, initial, longest, multiplier, codes) = retry;
    let seconds = |value: f64| Duration::try_from_secs_f64(value).map_err(|error| invalid(py, error.to_string()));
    let (initial_backoff, max_backoff) = (seconds(initial)?, seconds(longest)?);
    Ok(RetryPolicy { attempts, initial_backoff, max_backoff, multiplier, codes })
}

/// Host, port, `proxy-authorization`, and the hosts that are reached without the proxy.
pub(crate) type Proxied = (String, u16, Option<String>, Option<Vec<String>>);

/// The proxy to connect through.
pub(crate) fn proxy_of((host, port, authorization, bypass): Proxied) -> Proxy {
    Proxy { host, port, authorization, bypass }
}

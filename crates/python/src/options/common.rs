//! Options of clients and servers, as keyword arguments.

use std::time::Duration;

use nearcall_core::client::RetryPolicy;
use nearcall_core::{Admission, Encoding, Options, Proxy, SpinPolicy};
use pyo3::prelude::*;

use crate::options::login::Login;
use crate::options::tls::Tls;

/// Longer than a connection lasts; the clock can be set so far ahead.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Seconds, which Python has checked. More than anybody waits are as good as no limit.
pub(crate) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(FOREVER).min(FOREVER)
}

/// The options that clients and servers share, except those of [`trust`]. Python has checked them. `spin` is a number of
/// seconds, or `"auto"`.
pub(crate) fn options(
    spin: &Bound<'_, PyAny>,
    ring_size: usize,
    max_message_size: u64,
    handshake_timeout: f64,
    compression: Option<&str>,
) -> Options {
    Options {
        spin: spin.extract().map_or(SpinPolicy::Auto, |value| SpinPolicy::Fixed(seconds(value))),
        ring_size,
        max_message: max_message_size,
        handshake: seconds(handshake_timeout),
        compression: compression.and_then(|name| Encoding::named(name.as_bytes())),
        ..Options::default()
    }
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
pub(crate) fn retry_policy((attempts, initial, longest, multiplier, codes): Retried) -> RetryPolicy {
    RetryPolicy { attempts, initial_backoff: seconds(initial), max_backoff: seconds(longest), multiplier, codes }
}

/// Host, port, `proxy-authorization`, and the hosts that are reached without the proxy.
pub(crate) type Proxied = (String, u16, Option<String>, Option<Vec<String>>);

/// The proxy to connect through.
pub(crate) fn proxy_of((host, port, authorization, bypass): Proxied) -> Proxy {
    Proxy { host, port, authorization, bypass }
}

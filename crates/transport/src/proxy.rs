//! Connecting through a proxy, by HTTP's CONNECT (RFC 9110, 9.3.6).

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use nearcall_wire::shown;

use crate::connect::{receive_exactly, send_all};
use crate::dial::Pace;
use crate::link::{ConnectError, LinkError};
use crate::stream::Plain;

/// Bytes of a proxy's answer that are read at the most.
const LONGEST_ANSWER: usize = 16 << 10;

/// A proxy, and for whom it is.
#[derive(Clone)]
pub struct Proxy {
    /// A name or an address; IPv6 without its brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What it is told of who asks: the value of the header `proxy-authorization`.
    pub authorization: Option<String>,
    /// Hosts that are connected to directly, as `no_proxy` lists them, besides this machine itself; `None` if there are none,
    /// not even this machine.
    pub bypass: Option<Vec<String>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        f.debug_struct("Proxy").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "the proxy {open}{}{close}:{}", self.host, self.port)
    }
}

impl Proxy {
    /// Whether a host is reached through it.
    pub(crate) fn is_for(&self, host: &str, port: u16) -> bool {
        match &self.bypass {
            None => true,
            Some(bypass) => !is_this_machine(host) && !bypass.iter().any(|entry| fits(entry, host, port)),
        }
    }

    /// Asks the proxy at the other end of `socket` for a connection to `authority`: a host and a port. `failed` makes a
    /// sentence of a reason.
    pub(crate) async fn tunnel(
        &self,
        socket: OwnedFd,
        authority: &str,
        failed: &(dyn Fn(&dyn Display) -> String + Sync),
        pace: &Pace,
    ) -> Result<OwnedFd, ConnectError> {
        let trouble = |error: Option<LinkError>| match error {
            None => ConnectError::TimedOut(failed(&"it did not answer in time")),
            Some(LinkError::Closed) => ConnectError::Unavailable(failed(&"it hung up; is that a proxy?")),
            Some(error) => ConnectError::Unavailable(failed(&error)),
        };
        let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
        if let Some(authorization) = &self.authorization {
            request.push_str("Proxy-Authorization: ");
            request.push_str(authorization);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        let wire = Plain(socket);
        send_all(&wire, request.as_bytes(), &[], pace).await.map_err(trouble)?;
        let mut answer = Vec::new();
        // One by one: what comes after the empty line is the server's.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() == LONGEST_ANSWER {
                return Err(ConnectError::Mismatch(failed(&"its answer has no end; is that a proxy?")));
            }
            let mut byte = [0];
            receive_exactly(&wire, &mut byte, pace).await.map_err(trouble)?;
            answer.extend(byte);
            if answer.len() == 5 && answer != *b"HTTP/" {
                return Err(ConnectError::Mismatch(failed(&"what answers there is no HTTP proxy")));
            }
        }
        let line = answer.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let said = line.split_once(' ').map_or("", |(_, rest)| rest);
        let text = failed(&format!("it answered {}", shown(said)));
        match said.get(..3).and_then(|code| code.parse::<u16>().ok()) {
            Some(200..=299) => Ok(wire.0),
            Some(407) => Err(ConnectError::Untrusted(format!(
                "{text}; give it a user and a password: http://user:password@host:port"
            ))),
            Some(400..=499) => Err(ConnectError::Refused(text)),
            _ => Err(ConnectError::Unavailable(text)),
        }
    }
}

/// Whether a host is this machine by its name alone.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether an entry of `no_proxy` is for a host: `*`, a name with all below it, an address, a network such as
/// `10.0.0.0/8`; all but the first and the last with a port, if they like.
fn fits(entry: &str, host: &str, port: u16) -> bool {
    let entry = entry.trim().to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if entry == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>()
        && let Some((network, bits)) = entry.split_once('/')
    {
        return within(address, network, bits).unwrap_or(false);
    }
    let plain = entry.strip_prefix('[').and_then(|entry| entry.strip_suffix(']')).unwrap_or(&entry);
    let (entry, wanted) = match entry.rsplit_once(':') {
        // An address of IPv6 has colons of its own.
        _ if plain.parse::<IpAddr>().is_ok() => (plain, None),
        Some((entry, wanted)) => match wanted.parse::<u16>() {
            Ok(wanted) => (entry.trim_matches(['[', ']']), Some(wanted)),
            Err(_) => return false,
        },
        None => (plain, None),
    };
    if wanted.is_some_and(|wanted| wanted != port) {
        return false;
    }
    if let (Ok(one), Ok(other)) = (entry.parse::<IpAddr>(), host.parse::<IpAddr>()) {
        return one.to_canonical() == other.to_canonical();
    }
    let name = entry.trim_start_matches("*.").trim_start_matches('.');
    !name.is_empty() && (host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')))
}

/// Whether an address is in a network of so many leading bits.
fn within(address: IpAddr, network: &str, bits: &str) -> Option<bool> {
    let bits: u32 = bits.parse().ok()?;
    let network: IpAddr = network.parse().ok()?;
    match (address.to_canonical(), network) {
        (IpAddr::V4(address), IpAddr::V4(network)) if bits <= 32 => {
            let differ = address.to_bits() ^ network.to_bits();
            Some(bits == 0 || differ >> (32 - bits) == 0)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) if bits <= 128 => {
            let differ = address.to_bits() ^ network.to_bits();
            Some(bits == 0 || differ >> (128 - bits) == 0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_is_read_as_others_read_it() {
        for (entry, host, is_direct) in [
            ("*", "example.org", true),
            ("example.org", "example.org", true),
            ("example.org", "API.Example.org.", true),
            (".example.org", "api.example.org", true),
            ("*.example.org", "api.example.org", true),
            ("example.org", "notexample.org", false),
            ("example.org:7000", "example.org", true),
            ("example.org:7001", "example.org", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.30", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.0.0.0/33", "10.1.2.3", false),
            ("0.0.0.0/0", "10.1.2.3", true),
            ("10.0.0.0/8", "ten.example.org", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::1", "fd00::1", true),
            ("[fd00::1]:7000", "fd00::1", true),
            ("", "example.org", false),
            ("example.org:x", "example.org", false),
        ] {
            assert_eq!(fits(entry, host, 7000), is_direct, "{entry} {host}");
        }
    }

    #[test]
    fn this_machine_needs_no_proxy_unless_it_was_asked_for() {
        let proxy = |bypass| Proxy { host: "p".into(), port: 1, authorization: Some("secret".into()), bypass };
        for host in ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.2", "::1", "::ffff:127.0.0.1"] {
            assert!(!proxy(Some(Vec::new())).is_for(host, 1), "{host}");
            assert!(proxy(None).is_for(host, 1), "{host}");
        }
        assert!(proxy(Some(Vec::new())).is_for("example.org", 1));
        assert!(!format!("{:?}", proxy(None)).contains("secret"));
    }
}

//! A proxy, and the hosts that are reached through it.

use std::fmt::{self, Display};
use std::net::IpAddr;

/// A proxy, and the hosts that are reached through it.
#[derive(Clone)]
pub struct Proxy {
    /// The proxy's name or address; IPv6 without brackets.
    pub host: String,
    /// The proxy's port.
    pub port: u16,
    /// The client's credentials: the value of the header `proxy-authorization`.
    pub authorization: Option<String>,
    /// Hosts that are reached directly, as `no_proxy` lists them, in addition to this machine. `None`: all hosts, even
    /// this machine, are reached through the proxy.
    pub bypass: Option<Vec<String>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
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
    /// Whether the host is reached through the proxy.
    pub(crate) fn is_for(&self, host: &str, port: u16) -> bool {
        match &self.bypass {
            None => true,
            Some(bypass) => !is_this_machine(host) && !bypass.iter().any(|entry| fits(entry, host, port)),
        }
    }
}

/// Whether the host's name or address alone says that it is this machine.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether an entry of `no_proxy` fits a host. An entry is `*`, a name (with all names below it), an address, or a
/// network such as `10.0.0.0/8`. Names and addresses may have a port.
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
        // An IPv6 address has colons of its own.
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

/// Whether an address is in a network with `bits` leading bits.
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

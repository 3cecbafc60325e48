//! What the environment says.

use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use crate::buffer::Source;
use crate::sync::{AtomicI32, Ordering};

/// Where programs take messages, and tables, unless they say otherwise.
pub(crate) const PORT: &str = "4560";
const CONTROL_PORT: &str = "4561";
/// Where a route manager is, if only the port for its tables is named.
const MANAGER: &str = "routemgr:4561";
/// Bytes of the longest name with its port.
const LONGEST: usize = 63;

/// Where tables come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tables {
    /// A file, which is read again when it changes.
    File,
    /// A route manager, which is asked if it is named, and pushes them to a port.
    Manager {
        port: String,
        /// Who is asked, and how often.
        asked: Option<(String, Duration)>,
    },
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The file with the table to begin with.
pub(crate) fn seed() -> Option<PathBuf> {
    variable("RMR_SEED_RT").map(PathBuf::from)
}

/// Where the last table that was pushed is kept.
pub(crate) fn stash() -> Option<PathBuf> {
    variable("RMR_STASH_RT").map(PathBuf::from)
}

/// The host that is listened at.
pub(crate) fn bind_host() -> String {
    variable("RMR_BIND_IF").unwrap_or_else(|| "0.0.0.0".to_owned())
}

pub(crate) fn tables() -> Tables {
    tables_of(variable("RMR_RTG_SVC"), variable("RMR_CTL_PORT"), variable("RMR_RTREQ_FREQ"))
}

fn tables_of(service: Option<String>, port: Option<String>, seconds: Option<String>) -> Tables {
    if service.as_ref().is_some_and(|service| service.starts_with('-')) {
        return Tables::File;
    }
    let seconds = seconds.and_then(|text| text.parse().ok()).filter(|seconds| (1..=300).contains(seconds)).unwrap_or(5);
    // Whoever names only the port for tables has a manager at the usual place; whoever names nothing waits.
    let service = service.or_else(|| port.as_ref().map(|_| MANAGER.to_owned()));
    let port = port.unwrap_or_else(|| CONTROL_PORT.to_owned());
    match service.as_deref().map(|service| service.rsplit_once(':')) {
        None => Tables::Manager { port, asked: None },
        // A port alone: tables are pushed to it.
        Some(None) => Tables::Manager { port: service.unwrap_or_default(), asked: None },
        Some(Some(("tcp" | "", port))) => Tables::Manager { port: port.to_owned(), asked: None },
        Some(Some(_)) => {
            Tables::Manager { port, asked: Some((service.unwrap_or_default(), Duration::from_secs(seconds))) }
        }
    }
}

/// How a program that takes messages at a port calls itself. `None` if that is too long.
pub(crate) fn source(port: &str, name_only: bool) -> Option<Source> {
    let given = variable("RMR_SRC_ID").map(|given| without_port(&given).to_owned());
    let host = given.unwrap_or_else(own_host);
    let name = format!("{host}:{port}");
    let name_only = name_only || variable("RMR_SRC_NAMEONLY").and_then(|text| text.parse().ok()).unwrap_or(0) > 0;
    let address = match own_address() {
        Some(address) if !name_only => match variable("RMR_BIND_IF").and_then(|bound| bound.parse().ok()) {
            Some(bound) if !IpAddr::is_unspecified(&bound) => place(bound, port),
            _ => place(address, port),
        },
        _ => name.clone(),
    };
    (name.len() <= LONGEST).then_some(Source { name, address })
}

fn without_port(given: &str) -> &str {
    let end = match given.find(']') {
        Some(end) if given.starts_with('[') => end + 1,
        _ => given.find(':').unwrap_or(given.len()),
    };
    &given[..end]
}

fn place(address: IpAddr, port: &str) -> String {
    if address.is_ipv6() { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

fn own_host() -> String {
    let mut name = vec![0_u8; 256];
    // SAFETY: the buffer has so many bytes.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0;
    let end = name.iter().position(|&byte| byte == 0 || byte == b'.').unwrap_or(0);
    if failed || end == 0 { "localhost".to_owned() } else { String::from_utf8_lossy(&name[..end]).into_owned() }
}

/// The address from which this machine would send to others. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// The port that a program wants: `tcp:4560`, `:4560` or `4560`. `None` if that is no port.
pub(crate) fn port_of(given: &str) -> Option<u16> {
    given.rsplit_once(':').map_or(given, |(_, port)| port).parse().ok()
}

/// What is told to the user; negative: what the environment says.
static LEVEL: AtomicI32 = AtomicI32::new(-1);

/// Sets what is told to the user.
pub(crate) fn set_level(level: i32) {
    // Relaxed: nothing depends on it.
    LEVEL.store(level.max(0), Ordering::Relaxed);
}

/// Tells the user something, if that is wanted: 1 what is critical, 2 errors, 3 warnings, 4 what happens.
pub(crate) fn tell(level: i32, text: &str) {
    use std::io::Write;
    // Relaxed: likewise.
    let wanted = match LEVEL.load(Ordering::Relaxed) {
        ..0 => variable("RMR_LOG_VLEVEL").and_then(|text| text.parse().ok()).unwrap_or(2),
        level => level,
    };
    if level <= wanted {
        // Nobody is there to be told that it failed.
        let _ = writeln!(std::io::stderr(), "[RMR] {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_come_from_where_the_environment_says() {
        let read = |service: &str, port: &str| {
            let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            tables_of(given(service), given(port), Some("400".to_owned()))
        };
        let manager = |port: &str, asked: &str| Tables::Manager {
            port: port.to_owned(),
            asked: (!asked.is_empty()).then(|| (asked.to_owned(), Duration::from_secs(5))),
        };
        assert_eq!(read("-1", "4561"), Tables::File);
        assert_eq!(read("", ""), manager("4561", ""));
        assert_eq!(read("", "5000"), manager("5000", "routemgr:4561"));
        assert_eq!(read("5001", "5000"), manager("5001", ""));
        assert_eq!(read("tcp:5001", ""), manager("5001", ""));
        assert_eq!(read("rtmgr:4561", ""), manager("4561", "rtmgr:4561"));
    }

    #[test]
    fn ports_and_names_are_taken_out() {
        assert_eq!(
            ["tcp:4560", ":4560", "4560", "x", ""].map(port_of),
            [Some(4560), Some(4560), Some(4560), None, None]
        );
        assert_eq!(["app", "app:1", "[::1]", "[::1]:1"].map(without_port), ["app", "app", "[::1]", "[::1]"]);
    }
}

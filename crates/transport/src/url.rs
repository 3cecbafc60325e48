//! Where a server is, and by which transport.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A parsed URL of one of this crate's transports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Url {
    /// `shm://name`: shared memory between processes of one user on one machine.
    Shm(String),
    /// `unix:///path`: a Unix socket.
    Unix(PathBuf),
    /// `tcp://host:port`.
    Tcp {
        /// A name or address; IPv6 without its brackets.
        host: String,
        /// 0 lets the system choose (servers only).
        port: u16,
    },
    /// `tls://host:port`: TCP with encryption, and a certificate at least of the server.
    Tls {
        /// A name or address; IPv6 without its brackets.
        host: String,
        /// 0 lets the system choose (servers only).
        port: u16,
    },
    /// `inproc://name`: inside one process, for tests.
    Inproc(String),
}

/// Why a URL cannot be used; written for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the URL {url:?}: {reason}")]
pub struct BadUrl {
    url: String,
    reason: String,
}

/// Longest name of a shared memory or in-process server: it must fit a socket's path.
const LONGEST_NAME: usize = 64;

impl Url {
    /// The part before `://`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        match self {
            Self::Shm(_) => "shm",
            Self::Unix(_) => "unix",
            Self::Tcp { .. } => "tcp",
            Self::Tls { .. } => "tls",
            Self::Inproc(_) => "inproc",
        }
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(url: &str) -> Result<Self, BadUrl> {
        let bad = |reason: String| BadUrl { url: url.to_owned(), reason };
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(bad("write a scheme in front, such as shm://name, unix:///path or tcp://host:port".into()));
        };
        let name = || {
            let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if rest.is_empty() || rest.len() > LONGEST_NAME || !rest.chars().all(fine) || rest.starts_with('.') {
                return Err(bad(format!(
                    "the name after {scheme}:// must be 1 to {LONGEST_NAME} letters, digits, '.', '_' or '-', not starting with '.'"
                )));
            }
            Ok(rest.to_owned())
        };
        match scheme {
            "shm" => name().map(Self::Shm),
            "inproc" => name().map(Self::Inproc),
            "unix" if rest.starts_with('/') && rest.len() > 1 => {
                // sun_path holds 108 bytes with its terminator.
                if rest.len() > 107 || rest.contains('\0') {
                    return Err(bad("a socket's path is at most 107 bytes long".into()));
                }
                Ok(Self::Unix(PathBuf::from(rest)))
            }
            "unix" => Err(bad("unix:// takes an absolute path: write unix:///path/to/socket".into())),
            "tcp" | "tls" => {
                let (host, port) = rest.rsplit_once(':').ok_or_else(|| {
                    bad(format!("{scheme}:// takes a host and a port: write {scheme}://127.0.0.1:7000"))
                })?;
                let port = port.parse().map_err(|_| bad(format!("{port:?} is no port (0 to 65535)")))?;
                let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
                if host.is_empty() {
                    return Err(bad(format!("the host is missing: write {scheme}://127.0.0.1:7000")));
                }
                let host = host.to_owned();
                Ok(if scheme == "tls" { Self::Tls { host, port } } else { Self::Tcp { host, port } })
            }
            other => Err(bad(format!(
                "{other}:// is no transport known here; there are shm://, unix://, tcp://, tls:// and inproc://"
            ))),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(name) => write!(f, "shm://{name}"),
            Self::Inproc(name) => write!(f, "inproc://{name}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { host, port } | Self::Tls { host, port } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{}://{open}{host}{close}:{port}", self.scheme())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_back_as_written() {
        for url in [
            "shm://calc",
            "unix:///run/user/calc.sock",
            "tcp://127.0.0.1:7000",
            "tcp://[::1]:0",
            "tls://[::1]:7",
            "inproc://x",
        ] {
            assert_eq!(url.parse::<Url>().expect(url).to_string(), url);
        }
    }

    #[test]
    fn bad_urls_say_what_to_write() {
        for (url, hint) in [
            ("calc", "shm://name"),
            ("shm://", "1 to 64"),
            ("shm://a/b", "1 to 64"),
            ("unix://relative", "unix:///path"),
            ("tcp://host", "tcp://127.0.0.1:7000"),
            ("tls://:1", "tls://127.0.0.1:7000"),
            ("tcp://host:99999", "no port"),
            ("ftp://x", "no transport known"),
        ] {
            let error = url.parse::<Url>().expect_err(url).to_string();
            assert!(error.contains(hint) && error.contains(url), "{error}");
        }
    }
}

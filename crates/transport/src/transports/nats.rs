//! `nats://server:port/subject`: by way of a NATS server, plain or encrypted.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use nearcall_platform::descriptors;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::address::Host;
use crate::errors::ConnectError;
use crate::handshake::NATIVE;
use crate::link::pace::Pace;
use crate::nats::durable::Durable;
use crate::nats::{self, Servers, Taking};
use crate::options::Options;
use crate::peer::Peer;
use crate::places::clients::{Clients, ConnectionPermit, Handed};
use crate::places::place::{Bound, Dialling, Parsed, Place, Reconnect, Transport};
use crate::places::protocol::{Reached, SharedMemory};
use crate::places::sockets::Sockets;

pub(super) const NATS: Transport =
    Transport::new("nats://server/subject", |scheme, rest| Subject::parse(scheme, rest, false));
/// Its encryption is that of the two ways to the NATS server, which reads all that goes by.
pub(super) const NATS_TLS: Transport =
    Transport::new("nats+tls://server/subject", |scheme, rest| Subject::parse(scheme, rest, true));

/// Where NATS servers listen if their URL does not say so.
const PORT: u16 = 4222;
/// The longest subject of a service.
const LONGEST: usize = 200;

/// A subject, and the NATS servers to find it at.
#[derive(Debug, Clone)]
struct Subject {
    url: String,
    servers: Servers,
    name: String,
}

/// How the URLs of subjects begin whose messages are kept.
const DURABLE: [(&str, &str, bool); 2] =
    [("jetstream://", "jetstream", false), ("jetstream+tls://", "jetstream+tls", true)];

/// The subject of a URL `jetstream://server/subject`, whose messages are kept; `None` if it is another URL.
///
/// # Errors
/// What is wrong with it.
pub fn durable(url: &str) -> Option<Result<Durable, String>> {
    let find = |(begin, scheme, is_encrypted)| Some((scheme, url.strip_prefix(begin)?, is_encrypted));
    let (scheme, rest, is_encrypted) = DURABLE.into_iter().find_map(find)?;
    let parts = parts(scheme, rest, is_encrypted);
    Some(parts.map(|(servers, subject)| Durable { url: url.to_owned(), servers, subject }))
}

impl Subject {
    fn parse(scheme: &'static str, rest: &str, is_encrypted: bool) -> Parsed {
        let (servers, name) = parts(scheme, rest, is_encrypted)?;
        Ok(Arc::new(Self { url: format!("{scheme}://{rest}"), servers, name }))
    }

    /// What is known of who is at the other end.
    fn peer(&self) -> Peer {
        Peer::Beyond(self.servers.to_string())
    }
}

/// The servers and the subject of a URL.
fn parts(scheme: &'static str, rest: &str, is_encrypted: bool) -> Result<(Servers, String), String> {
    let (hosts, subject) = rest
        .split_once('/')
        .ok_or_else(|| format!("{scheme}:// takes a server and a subject: write {scheme}://127.0.0.1:4222/calc"))?;
    if hosts.contains('@') {
        return Err(format!(
            "a URL holds no password and no token: write {scheme}://server/subject, and give nats=NATS(...)"
        ));
    }
    let host = |text: &str| {
        let has_port = text.rsplit(']').next().unwrap_or_default().contains(':');
        let text = if has_port { text.to_owned() } else { format!("{text}:{PORT}") };
        Host::parse(scheme, &text).map(Host::into_parts)
    };
    let hosts = hosts.split(',').map(host).collect::<Result<_, _>>()?;
    let fine =
        |token: &str| !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '*' | '>'));
    if subject.len() > LONGEST || !subject.split('.').all(fine) {
        return Err(format!(
            "a subject is 1 to {LONGEST} letters, digits and signs without blanks, '*' and '>', such as calc or shop.prices"
        ));
    }
    Ok((Servers { hosts, is_encrypted }, subject.to_owned()))
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Place for Subject {
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let socket = nats::dial(&self.servers, &self.name, &self.url, options, pace).await?;
            let reached = Reached::plainly(socket, SharedMemory::Never, &NATIVE);
            Ok(Box::new(Reached { peer: Some(self.peer()), ..reached }) as _)
        })
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (channel, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let handed = Handed { channel, returned: Arc::new(descriptors::new_event()?) };
        let listening = nats::listen(&self.servers, &self.name, &self.url, options, other);
        let taking = listening.map_err(|error| match error {
            ConnectError::Options(_) | ConnectError::Refused(_) | ConnectError::Untrusted(_) => {
                io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
            }
            error => io::Error::other(error.to_string()),
        })?;
        let clients = AtSubject { handed, _taking: taking };
        let sockets = Sockets { peer: Some(self.peer()), ..Sockets::plainly(clients, SharedMemory::Never, &NATIVE) };
        Ok(Bound { acceptor: Box::new(sockets), place: Arc::new(self.clone()) })
    }

    fn reconnect(&self) -> Reconnect {
        Reconnect::Costly
    }
}

/// The clients who come to a subject.
#[derive(Debug)]
struct AtSubject {
    handed: Handed,
    _taking: Taking,
}

impl Clients for AtSubject {
    fn fd(&self) -> BorrowedFd<'_> {
        self.handed.fd()
    }

    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
        // They are counted by nobody else.
        self.handed.accept().map(|(socket, _)| (socket, None))
    }
}

//! `tcp://host:port`: where it may lead, and how a peer is noticed that vanished without a word.

use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::{Bound, Clients, Comeback, Dialled, Dialling, Memory, Place, Speaks, Transport, accept_from};
use crate::dial::Pace;
use crate::handed::ConnectionPermit;
use crate::link::{ConnectError, Options};
use crate::peer::Admission;

/// Silence after which the system asks whether the peer is still there.
const IDLE: Duration = Duration::from_secs(30);
/// Between two such questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer that end the connection.
const QUESTIONS: u32 = 3;
/// How long what was sent may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Tcp;

impl Transport for Tcp {
    fn form(&self) -> &'static str {
        "tcp://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, speaks) = (self.scheme(), Speaks::Nearcall);
        Ok(Arc::new(Plain { scheme, address: Address::parse(scheme, rest)?, speaks }))
    }
}

/// An address that is spoken to without encryption.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    pub(super) scheme: &'static str,
    pub(super) address: Address,
    pub(super) speaks: Speaks,
}

impl Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

impl Place for Plain {
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let socket = self.address.dial(self, options.allow_plaintext, pace).await?;
            Ok(Dialled { socket, memory: Memory::Never, tls: None, speaks: self.speaks })
        })
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let (clients, address) = self.address.listen(self, options.allow_plaintext)?;
        Ok(Bound {
            clients: Box::new(clients),
            place: Arc::new(Self { address, ..self.clone() }),
            memory: Memory::Never,
            tls: None,
            admission: Admission::default(),
            speaks: self.speaks,
        })
    }

    fn comeback(&self) -> Comeback {
        Comeback::Far
    }
}

/// A host and a port.
#[derive(Debug, Clone)]
pub(super) struct Address {
    /// A name or address; IPv6 without its brackets.
    pub(super) host: String,
    /// 0 lets the system choose (servers only).
    port: u16,
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

/// Takes clients from a TCP socket.
#[derive(Debug)]
pub(super) struct Listening(TcpListener);

impl Clients for Listening {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
        let accepted = accept_from(&self.0)?;
        // It fails only for a client that is gone already, which its handshake will show.
        let _ = prepare(&accepted.0);
        Ok(accepted)
    }
}

/// Sets up a connection's socket, on either side.
fn prepare(socket: impl AsFd) -> io::Result<()> {
    // A call is small and waits for its reply: Nagle's algorithm would only delay it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    // A machine that lost its power or its network sends no goodbye.
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, QUESTIONS)?;
    sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED.as_millis() as u32)?;
    Ok(())
}

/// Asks the system for the addresses of a host. There is no telling how long that takes.
fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// The addresses of a host, in time: else `TimedOut`.
async fn resolve(
    host: &str,
    port: u16,
    pace: &Pace,
    lookup: fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (answer, answers) = mpsc::sync_channel(1);
    let name = host.to_owned();
    // The system's resolver cannot be interrupted. If it takes too long, its thread is left to end by itself.
    thread::Builder::new().name("nearcall-resolver".into()).spawn(move || {
        // Nobody listens any more if it was too late.
        let _ = answer.send(lookup(&name, port));
    })?;
    let answer = pace.wait(move |end| match answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
        Err(mpsc::RecvTimeoutError::Timeout) => None,
        ended => ended.ok().or_else(|| Some(Err(io::ErrorKind::TimedOut.into()))),
    });
    answer.await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

/// A connected socket; `None` if time ran out.
async fn connect(address: SocketAddr, pace: &Pace) -> io::Result<Option<OwnedFd>> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if let Err(error) = rustix::net::connect(&socket, &address) {
        if error != rustix::io::Errno::INPROGRESS {
            return Err(error.into());
        }
        if !pace.ready(socket.as_fd(), PollFlags::OUT).await? {
            return Ok(None);
        }
        sockopt::socket_error(&socket)??;
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(Some(socket))
}

impl Address {
    pub(super) fn parse(scheme: &str, rest: &str) -> Result<Self, String> {
        let (host, port) = rest
            .rsplit_once(':')
            .ok_or_else(|| format!("{scheme}:// takes a host and a port: write {scheme}://127.0.0.1:7000"))?;
        let port = port.parse().map_err(|_| format!("{port:?} is no port (0 to 65535)"))?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(format!("the host is missing: write {scheme}://127.0.0.1:7000"));
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// Connects, on behalf of `url`. Without `anywhere` nothing is to leave this machine.
    pub(super) async fn dial(
        &self,
        url: &(impl Display + Sync),
        anywhere: bool,
        pace: &Pace,
    ) -> Result<OwnedFd, ConnectError> {
        let unavailable = |error: io::Error| ConnectError::Unavailable(format!("cannot connect to {url}: {error}"));
        let host = &self.host;
        let addresses = match resolve(host, self.port, pace, lookup).await {
            Ok(addresses) => addresses,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(ConnectError::TimedOut(format!(
                    "cannot connect to {url}: no address for {host} came in time; is the name right, and the resolver there?"
                )));
            }
            Err(error) => return Err(unavailable(error)),
        };
        if let Some(far) = addresses.iter().find(|address| !anywhere && !is_here(address)) {
            return Err(ConnectError::Options(format!(
                "cannot connect to {url}: {} is not this machine, and this is not encrypted; say allow_plaintext=True if that network can be trusted",
                far.ip()
            )));
        }
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            match connect(address, pace).await {
                Ok(Some(socket)) => {
                    prepare(&socket).map_err(unavailable)?;
                    return Ok(socket);
                }
                Ok(None) => return Err(ConnectError::TimedOut(format!("cannot connect to {url}: no answer in time"))),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    last = io::Error::new(error.kind(), "nobody listens there; start the server first");
                }
                Err(error) => last = error,
            }
        }
        Err(unavailable(last))
    }

    /// Listens, on behalf of `url`, and where that really is. Without `anywhere` only this machine is to come.
    pub(super) fn listen(&self, url: &impl Display, anywhere: bool) -> io::Result<(Listening, Self)> {
        let refuse = |error: io::Error| io::Error::new(error.kind(), format!("cannot serve {url}: {error}"));
        let addresses: Vec<SocketAddr> = (&*self.host, self.port).to_socket_addrs().map_err(refuse)?.collect();
        if let Some(far) = addresses.iter().find(|address| !anywhere && !is_here(address)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "cannot serve {url}: other machines can reach {}, and this is not encrypted and asks nobody who they are; say allow_plaintext=True if that network can be trusted",
                    far.ip()
                ),
            ));
        }
        let listener = TcpListener::bind(&addresses[..]).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                let why = "another program listens there; stop it or take another port";
                io::Error::new(error.kind(), format!("cannot serve {url}: {why}"))
            }
            _ => refuse(error),
        })?;
        listener.set_nonblocking(true)?;
        let address = Self { host: self.host.clone(), port: listener.local_addr()?.port() };
        Ok((Listening(listener), address))
    }
}

/// Whether nothing sent there leaves this machine.
fn is_here(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Waits for a future whose pace has one slice.
    fn wait<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended,
            Poll::Pending => panic!("it goes on after its time"),
        }
    }

    #[test]
    fn a_resolver_that_does_not_answer_is_not_waited_for() {
        fn stuck(_: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            loop {
                thread::park();
            }
        }
        let soon = || Pace::new(Instant::now() + Duration::from_millis(20));
        let error = wait(resolve("example.org", 1, &soon(), stuck)).expect_err("no answer");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // An address needs no resolver.
        let found = wait(resolve("::1", 1, &soon(), stuck)).expect("an address");
        assert_eq!(found, ["[::1]:1".parse().expect("an address")]);
    }

    #[test]
    fn what_the_resolver_says_arrives() {
        let late = Pace::new(Instant::now() + Duration::from_secs(20));
        let found = wait(resolve("localhost", 7, &late, lookup)).expect("every machine knows it");
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7) && !found.is_empty());
        let failed: fn(&str, u16) -> _ = |_, _| Err(io::ErrorKind::NotFound.into());
        assert_eq!(wait(resolve("nowhere", 7, &late, failed)).expect_err("as said").kind(), io::ErrorKind::NotFound);
    }
}

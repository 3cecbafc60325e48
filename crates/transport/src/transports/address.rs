//! `host:port`, or several of them separated by commas: finds the servers' addresses, connects and listens.

use std::fmt::{self, Display};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::resolve::{self, Lookup, Resolver};
use super::sockets::{Listening, connect, prepare};
use super::tunnel::tunnel;
use crate::errors::ConnectError;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::options::proxy::{Proxy, is_this_machine};
use crate::places::place::{Each, Finding, Found, Place};

/// The longest lookup of one of several hosts: meanwhile the others could be tried.
const LOOKUP: Duration = Duration::from_secs(2);

/// The hosts of a URL, and how to reach the host if there is only one.
#[derive(Debug, Clone)]
pub(super) struct Address {
    hosts: Vec<Host>,
    reach: Reach,
}

/// A host and a port.
#[derive(Debug, Clone)]
pub(super) struct Host {
    /// A name or address; IPv6 without its brackets.
    name: String,
    /// 0 lets the system choose (servers only).
    port: u16,
}

/// How to reach the only host.
#[derive(Debug, Clone)]
enum Reach {
    /// The host was not looked up yet.
    Unknown,
    /// At this address, which may be a proxy's.
    At(SocketAddr, Option<Arc<Proxy>>),
    /// The host's name was not found, or not in time.
    Nowhere { in_time: bool, why: String },
}

impl Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.name.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.name, self.port)
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Address {
    pub(super) fn parse(scheme: &str, rest: &str) -> Result<Self, String> {
        let hosts: Result<Vec<_>, _> = rest.split(',').map(|host| Host::parse(scheme, host)).collect();
        Ok(Self { hosts: hosts?, reach: Reach::Unknown })
    }

    /// The name of the host, or of the first of them.
    pub(super) fn name(&self) -> &str {
        self.hosts.first().map_or("", |host| &host.name)
    }

    /// The address that was found for the name, as text; empty if none was.
    pub(super) fn place(&self) -> String {
        if let Reach::At(address, _) = &self.reach { format!(" at {address}") } else { String::new() }
    }

    /// Finds the servers, on behalf of `url`; `place` makes a place of each. Unless `anywhere`, nothing may leave this
    /// machine.
    pub(super) fn find<'a>(
        &'a self,
        url: &'a (impl Display + Sync),
        options: &'a Options,
        each: Each,
        anywhere: bool,
        pace: &'a Pace,
        place: impl Fn(Self) -> Arc<dyn Place> + Send + 'a,
    ) -> Finding<'a> {
        Box::pin(async move {
            if !matches!(self.reach, Reach::Unknown) {
                return Ok(Vec::new());
            }
            let found = self.look_up(url, options, each, anywhere, pace, resolve::system).await?;
            Ok(found.into_iter().map(|(host, address)| Found { place: place(address), host }).collect())
        })
    }

    /// Each server, and the index of its host.
    async fn look_up(
        &self,
        url: &(impl Display + Sync),
        options: &Options,
        each: Each,
        anywhere: bool,
        pace: &Pace,
        resolver: Resolver,
    ) -> Result<Vec<(usize, Self)>, ConnectError> {
        let unavailable = |error: io::Error| ConnectError::Unavailable(format!("cannot connect to {url}: {error}"));
        let mut asked = Vec::new();
        for host in &self.hosts {
            let proxy = options.proxy.clone().filter(|proxy| proxy.is_for(&host.name, host.port));
            let (name, port) = proxy.as_ref().map_or((&*host.name, host.port), |proxy| (&*proxy.host, proxy.port));
            // All lookups begin at once, so that a slow one does not delay the others.
            asked.push((host, Lookup::begin(name, port, resolver).map_err(unavailable)?, proxy));
        }
        let is_only = self.hosts.len() == 1;
        let until = if is_only { pace.deadline() } else { pace.deadline().min(Instant::now() + LOOKUP) };
        let mut found = Vec::new();
        for (index, (host, lookup, proxy)) in asked.into_iter().enumerate() {
            let one = |reach| (index, Self { hosts: vec![host.clone()], reach });
            let addresses = match lookup.answer(until, pace).await {
                Ok(addresses) => addresses,
                Err(error) => {
                    let name = proxy.as_ref().map_or(&host.name, |proxy| &proxy.host);
                    let in_time = error.kind() != io::ErrorKind::TimedOut;
                    let why = if in_time {
                        format!("no address for {name}: {error}")
                    } else {
                        format!("no address for {name} came in time; is the name right, and the resolver there?")
                    };
                    if is_only {
                        return Err(nowhere(url, in_time, &why));
                    }
                    // A balanced client looks the name up again when it dials this server.
                    found.push(one(if each == Each::Server {
                        Reach::Unknown
                    } else {
                        Reach::Nowhere { in_time, why }
                    }));
                    continue;
                }
            };
            if !anywhere && !options.allow_plaintext {
                check_here(url, &host.name, &addresses, proxy.as_deref())?;
            }
            if each == Each::Server && proxy.is_some() {
                found.push(one(Reach::Unknown));
                continue;
            }
            found.extend(addresses.into_iter().map(|address| one(Reach::At(address, proxy.clone()))));
        }
        if found.is_empty() {
            return Err(nowhere(url, true, "the host has no address"));
        }
        Ok(found)
    }

    /// Connects to the only server, on behalf of `url`.
    pub(super) async fn dial(&self, url: &(impl Display + Sync), pace: &Pace) -> Result<OwnedFd, ConnectError> {
        let (address, proxy) = match &self.reach {
            Reach::At(address, proxy) => (*address, proxy.as_deref()),
            Reach::Nowhere { in_time, why } => return Err(nowhere(url, *in_time, why)),
            Reach::Unknown => return Err(nowhere(url, true, "nobody has looked where it is")),
        };
        let through = proxy.map_or(String::new(), |proxy| format!(" through {proxy}"));
        let failed = |why: &dyn Display| format!("cannot connect to {url}{through}: {why}");
        let socket = match connect(address, pace).await {
            Ok(Some(socket)) => socket,
            Ok(None) => return Err(ConnectError::TimedOut(failed(&"no answer in time"))),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let advice = if proxy.is_some() { "is the proxy right?" } else { "start the server first" };
                return Err(ConnectError::Unavailable(failed(&format!("nobody listens there; {advice}"))));
            }
            Err(error) => return Err(ConnectError::Unavailable(failed(&error))),
        };
        pace.reach();
        prepare(&socket).map_err(|error| ConnectError::Unavailable(failed(&error)))?;
        match proxy {
            None => Ok(socket),
            Some(proxy) => tunnel(proxy, socket, &self.to_string(), &failed, pace).await,
        }
    }

    /// Listens, on behalf of `url`, and returns the real address. Unless `anywhere`, only this machine may connect.
    pub(super) fn listen(
        &self,
        url: &impl Display,
        options: &Options,
        anywhere: bool,
    ) -> io::Result<(Listening, Self)> {
        let refuse = |error: io::Error| io::Error::new(error.kind(), format!("cannot serve {url}: {error}"));
        let [host] = &self.hosts[..] else {
            let why = "a server listens at one address of each URL: give it several URLs";
            return Err(refuse(io::Error::new(io::ErrorKind::InvalidInput, why)));
        };
        let addresses: Vec<SocketAddr> = (&*host.name, host.port).to_socket_addrs().map_err(refuse)?.collect();
        if let Some(far) = addresses.iter().find(|address| !anywhere && !is_here(address)) {
            let why = format!(
                "other machines can reach {}, and this is not encrypted and asks nobody who they are; say allow_plaintext=True if that network can be trusted",
                far.ip()
            );
            return Err(refuse(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let listener = match options.passed.take_tcp(&addresses) {
            Some(listener) => listener,
            None => TcpListener::bind(&addresses[..]).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => {
                    refuse(io::Error::new(error.kind(), "another program listens there; stop it or take another port"))
                }
                _ => refuse(error),
            })?,
        };
        listener.set_nonblocking(true)?;
        let host = Host { name: host.name.clone(), port: listener.local_addr()?.port() };
        Ok((Listening(listener), Self { hosts: vec![host], reach: Reach::Unknown }))
    }
}

impl Host {
    pub(super) fn parse(scheme: &str, text: &str) -> Result<Self, String> {
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| format!("{scheme}:// takes a host and a port: write {scheme}://127.0.0.1:7000"))?;
        if let Some((port, path)) = port.split_once('/') {
            return Err(format!("a URL ends with the port, without '/{path}': write {scheme}://{host}:{port}"));
        }
        let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port (0 to 65535)"))?;
        let name = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if name.is_empty() {
            return Err(format!("the host is missing: write {scheme}://127.0.0.1:7000"));
        }
        if name.contains(['[', ']']) {
            return Err(format!("an IPv6 address stands in two brackets: write {scheme}://[::1]:{port}"));
        }
        if let Some((_, name)) = name.rsplit_once('@') {
            return Err(format!("a URL names no user: write {scheme}://{name}:{port}"));
        }
        Ok(Self { name: name.to_owned(), port })
    }

    pub(super) fn into_parts(self) -> (String, u16) {
        (self.name, self.port)
    }
}

fn nowhere(url: &impl Display, in_time: bool, why: &str) -> ConnectError {
    let text = format!("cannot connect to {url}: {why}");
    if in_time { ConnectError::Unavailable(text) } else { ConnectError::TimedOut(text) }
}

/// Refuses connections that would leave this machine.
fn check_here(
    url: &impl Display,
    name: &str,
    addresses: &[SocketAddr],
    proxy: Option<&Proxy>,
) -> Result<(), ConnectError> {
    let far = addresses.iter().find(|address| !is_here(address));
    let what = match (proxy, far) {
        (Some(proxy), far) if far.is_some() || !is_this_machine(name) => {
            format!("the way through {proxy} leaves this machine")
        }
        (None, Some(far)) => format!("{} is not this machine", far.ip()),
        _ => return Ok(()),
    };
    Err(ConnectError::Options(format!(
        "cannot connect to {url}: {what}, and this is not encrypted; say allow_plaintext=True if that network can be trusted"
    )))
}

/// Whether data sent to the address stays on this machine.
fn is_here(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// A zone of names: `two` has two addresses, `none` has none, and other names are unknown.
    fn zone(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match name {
            "two" => Ok(vec![([127, 0, 0, 2], port).into(), ([127, 0, 0, 3], port).into()]),
            "far" => Ok(vec![([192, 0, 2, 1], port).into()]),
            "none" => Ok(Vec::new()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
        }
    }

    fn look_up(rest: &str, each: Each, options: &Options) -> Result<Vec<(usize, String)>, ConnectError> {
        let address = Address::parse("tcp", rest).expect("a list of hosts");
        let pace = Pace::new(Instant::now() + Duration::from_secs(20));
        let url = format!("tcp://{rest}");
        let mut future = pin!(address.look_up(&url, options, each, false, &pace, zone));
        let found = match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found?,
            Poll::Pending => panic!("it goes on after its time"),
        };
        let shown = |(host, address): (usize, Address)| match address.reach {
            Reach::At(at, proxy) => (host, format!("{at}{}", proxy.map_or(String::new(), |proxy| format!(" {proxy}")))),
            Reach::Unknown => (host, address.to_string()),
            Reach::Nowhere { why, .. } => (host, why),
        };
        Ok(found.into_iter().map(shown).collect())
    }

    fn pairs(of: &[(usize, &str)]) -> Vec<(usize, String)> {
        of.iter().map(|&(host, text)| (host, text.to_owned())).collect()
    }

    #[test]
    fn names_and_lists_lead_to_every_address() {
        let options = Options::default();
        let found = look_up("two:7,127.0.0.9:8", Each::Address, &options).expect("addresses");
        assert_eq!(found, pairs(&[(0, "127.0.0.2:7"), (0, "127.0.0.3:7"), (1, "127.0.0.9:8")]));
        assert_eq!(look_up("two:7,127.0.0.9:8", Each::Server, &options).expect("addresses"), found);
    }

    #[test]
    fn a_name_that_nobody_knows_leaves_the_others() {
        let options = Options::default();
        let found = look_up("unknown:7,two:8", Each::Address, &options).expect("addresses");
        assert!(found[0].1.contains("no address for unknown: no such name"), "{found:?}");
        assert_eq!(found[1..], pairs(&[(1, "127.0.0.2:8"), (1, "127.0.0.3:8")]));
        // This host is looked up again when it is dialled.
        let found = look_up("unknown:7,two:8", Each::Server, &options).expect("addresses");
        assert_eq!(found[0], (0, "unknown:7".to_owned()));
        for (rest, part) in [("unknown:7", "no address for unknown"), ("none:7", "the host has no address")] {
            let error = look_up(rest, Each::Address, &options).expect_err("nobody is there");
            assert!(matches!(&error, ConnectError::Unavailable(text) if text.contains(part)), "{error}");
        }
    }

    #[test]
    fn one_host_on_another_machine_is_one_too_many() {
        let error = look_up("two:7,far:8", Each::Address, &Options::default()).expect_err("it is not encrypted");
        assert!(error.to_string().contains("192.0.2.1 is not this machine"), "{error}");
        let options = Options { allow_plaintext: true, ..Options::default() };
        assert_eq!(look_up("two:7,far:8", Each::Address, &options).expect("addresses").len(), 3);
    }

    #[test]
    fn behind_a_proxy_names_are_the_proxys() {
        let proxy = |bypass| Proxy { host: "two".into(), port: 3128, authorization: None, bypass };
        let with =
            |proxy, allow_plaintext| Options { proxy: Some(Arc::new(proxy)), allow_plaintext, ..Options::default() };
        let options = with(proxy(Some(vec!["direct.example".into()])), true);
        let found = look_up("inside:7,127.0.0.9:8", Each::Address, &options).expect("addresses");
        let through = "the proxy two:3128";
        assert_eq!(
            found,
            pairs(&[
                (0, &format!("127.0.0.2:3128 {through}")),
                (0, &format!("127.0.0.3:3128 {through}")),
                (1, "127.0.0.9:8")
            ])
        );
        let found = look_up("inside:7,127.0.0.9:8", Each::Server, &options).expect("addresses");
        assert_eq!(found, pairs(&[(0, "inside:7"), (1, "127.0.0.9:8")]));
        // A connection through a proxy leaves this machine, unless the host is this machine.
        let error = look_up("inside:7", Each::Address, &with(proxy(None), false)).expect_err("it is not encrypted");
        assert!(error.to_string().contains("the way through the proxy two:3128 leaves this machine"), "{error}");
        assert_eq!(look_up("127.0.0.9:7", Each::Address, &with(proxy(None), false)).expect("addresses").len(), 2);
    }
}

//! Looks up the addresses of a host's name, in the order in which to try them.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Instant;

use crate::link::pace::Pace;
use crate::places::answer::Answer;

/// Finds the addresses of a name. May take any time.
pub(super) type Resolver = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The most addresses of one name that are used.
const MOST_ADDRESSES: usize = 128;

/// The system's resolver.
pub(super) fn system(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// A lookup that has begun.
pub(super) enum Lookup {
    Known(SocketAddr),
    Asked(Answer<io::Result<Vec<SocketAddr>>>),
}

impl Lookup {
    pub(super) fn begin(host: &str, port: u16, resolver: Resolver) -> io::Result<Self> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Self::Known(SocketAddr::new(address, port)));
        }
        let name = host.to_owned();
        Ok(Self::Asked(Answer::ask("nearcall-resolver", move || resolver(&name, port))?))
    }

    /// The answer, or `TimedOut` if it does not arrive until `until`.
    pub(super) async fn answer(self, until: Instant, pace: &Pace) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Known(address) => Ok(vec![address]),
            Self::Asked(answer) => {
                let addresses = answer.wait(until, pace).await;
                Ok(in_turn(addresses.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?))
            }
        }
    }
}

/// Alternates the two kinds of addresses, as RFC 8305 recommends: if one kind does not work at all, the other is tried
/// soon.
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut turns = Vec::new();
    loop {
        let both = [one.next(), other.next()];
        if both.iter().all(Option::is_none) || turns.len() >= MOST_ADDRESSES {
            return turns;
        }
        for address in both.into_iter().flatten() {
            if !turns.contains(&address) {
                turns.push(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Waits for a future whose pace has one slice.
    fn wait<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended,
            Poll::Pending => panic!("it goes on after its time"),
        }
    }

    fn resolve(host: &str, port: u16, time: Duration, resolver: Resolver) -> io::Result<Vec<SocketAddr>> {
        let pace = Pace::new(Instant::now() + time);
        wait(Lookup::begin(host, port, resolver)?.answer(pace.deadline(), &pace))
    }

    #[test]
    fn a_resolver_that_does_not_answer_is_not_waited_for() {
        fn stuck(_: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            loop {
                thread::park();
            }
        }
        let soon = Duration::from_millis(20);
        let error = resolve("example.org", 1, soon, stuck).expect_err("no answer");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // An address needs no resolver.
        let found = resolve("::1", 1, soon, stuck).expect("an address");
        assert_eq!(found, ["[::1]:1".parse().expect("an address")]);
    }

    #[test]
    fn what_the_resolver_says_arrives() {
        let late = Duration::from_secs(20);
        let found = resolve("localhost", 7, late, system).expect("every machine knows it");
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7) && !found.is_empty());
        let failed: Resolver = |_, _| Err(io::ErrorKind::NotFound.into());
        assert_eq!(resolve("nowhere", 7, late, failed).expect_err("as said").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn both_kinds_of_addresses_take_turns_and_come_once() {
        let parse = |text: &str| -> Vec<SocketAddr> {
            text.split(' ').map(|address| address.parse().expect("an address")).collect()
        };
        let found = in_turn(parse("[::1]:1 [::2]:1 [::1]:1 [::3]:1 1.1.1.1:1 2.2.2.2:1"));
        assert_eq!(found, parse("[::1]:1 1.1.1.1:1 [::2]:1 2.2.2.2:1 [::3]:1"));
        assert_eq!(in_turn(Vec::new()), []);
    }
}

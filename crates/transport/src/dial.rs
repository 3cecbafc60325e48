//! Dials in slices: the thread that waits for a connection may stop at any time, and another may continue where it
//! stopped.
//!
//! A URL may lead to several addresses. They are tried in order. If one does not answer soon, the next attempt begins
//! while the first goes on. The first connection with a complete handshake wins. A server that leaves during the
//! handshake may have a successor at the same address: it is tried again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::errors::ConnectError;
use crate::link::LONGEST_SLEEP;
use crate::link::pace::Steps;
use crate::options::Options;
use crate::places::opening::{Connected, Greeting};
use crate::places::place::{Each, Found};
use crate::url::Url;

/// How long to wait for an address before the next one is tried, too. RFC 8305 recommends this time.
const STAGGER: Duration = Duration::from_millis(250);
/// With several attempts under way, how long to wait for one before looking at the next.
const TURN: Duration = Duration::from_millis(5);
/// How often an address is tried whose server leaves during the handshake.
const TRIES: u32 = 3;

/// A connection in the making. It proceeds only inside [`Dial::advance`], and ends when it is dropped.
pub struct Dial {
    url: Url,
    version: &'static str,
    options: Options,
    deadline: Instant,
    stage: DialStage,
}

enum DialStage {
    /// Looks up the servers' addresses.
    Finding(Steps<Vec<Found>>),
    Dialling(Attempts),
}

/// The attempts at the addresses of a URL.
struct Attempts {
    /// The addresses to try, and how often each may be tried.
    waiting: VecDeque<(Found, u32)>,
    under_way: Vec<Attempt>,
    /// When the next attempt begins: `soon` if no connection has been accepted, `later` if one has and shakes hands.
    soon: Instant,
    later: Instant,
    failures: Vec<ConnectError>,
}

struct Attempt {
    found: Found,
    /// How often the address may still be tried after this.
    tries_left: u32,
    steps: Steps<Connected>,
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dial").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Dial {
    /// Prepares a connection to `url`, to be complete within `options.handshake`. `version` is this library's.
    #[must_use]
    pub fn new(url: &Url, version: &'static str, options: &Options) -> Self {
        let deadline = Instant::now() + options.handshake;
        let stage = DialStage::Finding(find(url, options, Each::Address, deadline));
        Self { url: url.clone(), version, options: options.clone(), deadline, stage }
    }

    /// Continues until `until` at most, or until a signal arrives. `None` if the dial is not complete.
    ///
    /// # Errors
    /// [`ConnectError`], with a sentence that names the URL.
    ///
    /// # Panics
    /// If the dial was complete before.
    pub fn advance(&mut self, until: Instant) -> Result<Option<Connected>, ConnectError> {
        if let DialStage::Finding(steps) = &mut self.stage {
            let Some(mut found) = steps.advance(until)? else { return Ok(None) };
            if found.is_empty() {
                found.push(Found { place: Arc::clone(self.url.place()), host: 0 });
            }
            self.stage = DialStage::Dialling(Attempts::new(found));
        }
        loop {
            let DialStage::Dialling(attempts) = &mut self.stage else { return Ok(None) };
            let now = Instant::now();
            if attempts.is_time_for_next(now)
                && let Some((found, tries)) = attempts.waiting.pop_front()
            {
                attempts.begin(found, tries - 1, self.version, &self.options, self.deadline);
            }
            if attempts.under_way.is_empty() {
                return Err(attempts.failure(&self.url));
            }
            if let Some(connected) = attempts.advance(until) {
                return Ok(Some(connected));
            }
            if !attempts.under_way.is_empty() && (attempts.is_last() || Instant::now() >= until) {
                return Ok(None);
            }
        }
    }
}

/// Dials `url` and shakes hands. Blocks for at most `options.handshake`.
///
/// # Errors
/// [`ConnectError`], with a sentence that names the URL.
pub fn connect(url: &Url, version: &'static str, options: &Options) -> Result<Connected, ConnectError> {
    let mut dial = Dial::new(url, version, options);
    loop {
        if let Some(connected) = dial.advance(Instant::now() + LONGEST_SLEEP)? {
            return Ok(connected);
        }
    }
}

/// The servers at `url`, each with a URL of its own, within `options.handshake`. A URL of a single server gives itself.
///
/// # Errors
/// [`ConnectError`], with a sentence that names the URL.
pub fn servers(url: &Url, options: &Options) -> Result<Vec<Url>, ConnectError> {
    let deadline = Instant::now() + options.handshake;
    let found = find(url, options, Each::Server, deadline).finish()?;
    let found: Vec<Url> = found.into_iter().map(|found| Url::of(found.place)).collect();
    Ok(if found.is_empty() { vec![url.clone()] } else { found })
}

fn find(url: &Url, options: &Options, each: Each, deadline: Instant) -> Steps<Vec<Found>> {
    let (url, options) = (url.clone(), options.clone());
    Steps::new(deadline, |pace| async move { url.place().servers(&options, each, &pace).await })
}

impl Attempts {
    fn new(found: Vec<Found>) -> Self {
        let (under_way, failures) = (Vec::new(), Vec::new());
        let now = Instant::now();
        let waiting = found.into_iter().map(|found| (found, TRIES)).collect();
        Self { waiting, under_way, soon: now, later: now, failures }
    }

    /// Whether to try the next address: no attempt is under way, or those under way have had their time.
    fn is_time_for_next(&self, now: Instant) -> bool {
        self.under_way.is_empty() || now >= self.next()
    }

    fn next(&self) -> Instant {
        // An attempt whose connection was accepted is slow for another reason than a missing server.
        let greets = self.under_way.iter().any(|attempt| attempt.steps.is_reached());
        if greets { self.later } else { self.soon }
    }

    fn begin(&mut self, found: Found, tries_left: u32, version: &'static str, options: &Options, deadline: Instant) {
        let (place, options) = (Arc::clone(&found.place), options.clone());
        let steps = Steps::new(deadline, |pace| async move {
            let url = &place.to_string();
            let greeting = Greeting { url, version, options: &options, pace: &pace };
            place.dial(&options, &pace).await?.greet(greeting).await
        });
        self.under_way.push(Attempt { found, tries_left, steps });
        let now = Instant::now();
        self.soon = now + STAGGER;
        let share = deadline.saturating_duration_since(now) / (self.waiting.len() as u32 + 1);
        self.later = self.soon.max(now + share);
    }

    /// Whether only one attempt is left.
    fn is_last(&self) -> bool {
        self.waiting.is_empty() && self.under_way.len() == 1
    }

    /// Continues all attempts under way, until `until` at most.
    fn advance(&mut self, until: Instant) -> Option<Connected> {
        let end = match &self.under_way[..] {
            [_] if self.waiting.is_empty() => until,
            [_] => until.min(self.next()),
            _ => until.min(Instant::now() + TURN),
        };
        let mut index = 0;
        while let Some(attempt) = self.under_way.get_mut(index) {
            match attempt.steps.advance(end) {
                Ok(None) => index += 1,
                Ok(Some(connected)) => return Some(connected),
                Err(error) => {
                    let Attempt { found, tries_left, .. } = self.under_way.remove(index);
                    if !may_pass(&error) {
                        // The host's other addresses lead to the same server.
                        self.under_way.retain(|attempt| attempt.found.host != found.host);
                        self.waiting.retain(|(other, _)| other.host != found.host);
                        index = 0;
                    }
                    if matches!(error, ConnectError::Left(_)) && tries_left > 0 {
                        self.waiting.push_back((found, tries_left));
                    }
                    self.failures.push(error);
                    self.soon = Instant::now();
                    self.later = self.soon;
                }
            }
        }
        None
    }

    /// Why no attempt led to a connection.
    fn failure(&mut self, url: &Url) -> ConnectError {
        let mut failures = std::mem::take(&mut self.failures);
        let mut said: Vec<String> = Vec::new();
        for text in failures.iter().map(ToString::to_string) {
            if !said.contains(&text) {
                said.push(text);
            }
        }
        // Errors that may pass come before others, and a missing server before a slow one.
        let rank = |error: &ConnectError| match error {
            ConnectError::Unavailable(_) | ConnectError::Left(_) => 0,
            ConnectError::TimedOut(_) => 1,
            _ => 2,
        };
        failures.sort_by_key(rank);
        let first = failures.into_iter().next();
        let nobody = || ConnectError::Unavailable(format!("cannot connect to {url}: the host has no address"));
        match (first, &said[..]) {
            (None, _) => nobody(),
            (Some(only), [] | [_]) => only,
            (Some(first), all) => first.saying(format!("none of the servers of {url} can be used: {}", all.join("; "))),
        }
    }
}

/// Whether another address of the same server may do better.
fn may_pass(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Unavailable(_) | ConnectError::Left(_) | ConnectError::TimedOut(_))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn listening(address: &str) -> (TcpListener, u16) {
        let listener = TcpListener::bind(address).expect("listen");
        let port = listener.local_addr().expect("its address").port();
        (listener, port)
    }

    fn dial(url: &str, time: Duration) -> (usize, ConnectError) {
        let options = Options { handshake: time, ..Options::default() };
        let mut dial = Dial::new(&url.parse().expect("a URL"), "test", &options);
        let mut slices = 0;
        loop {
            slices += 1;
            match dial.advance(Instant::now() + Duration::from_millis(10)) {
                Ok(connected) => assert!(connected.is_none(), "nobody answers"),
                Err(error) => return (slices, error),
            }
        }
    }

    #[test]
    fn a_dial_goes_on_where_it_was_and_ends_with_its_time() {
        let (listener, port) = listening("127.0.0.1:0");
        let (slices, error) = dial(&format!("tcp://127.0.0.1:{port}"), Duration::from_millis(300));
        assert!(matches!(error, ConnectError::TimedOut(_)), "{error}");
        assert!(slices > 1);
        // All slices used one connection.
        listener.set_nonblocking(true).expect("set");
        assert!(listener.accept().is_ok() && listener.accept().is_err());
    }

    #[test]
    fn each_address_is_tried_and_each_failure_is_named() {
        let (one, port) = listening("127.0.0.1:0");
        let url = format!("tcp://127.0.0.1:{port},127.0.0.2:{port}");
        let (_, error) = dial(&url, Duration::from_millis(600));
        let said = error.to_string();
        // A missing server may appear sooner than a silent one answers.
        assert!(matches!(error, ConnectError::Unavailable(_)), "{error}");
        for part in [&url[..], "did not finish the handshake in time", &format!("127.0.0.2:{port}: nobody listens")] {
            assert!(said.contains(part), "{said}");
        }
        one.set_nonblocking(true).expect("set");
        assert!(one.accept().is_ok() && one.accept().is_err());
    }

    #[test]
    fn who_does_not_want_us_is_not_asked_at_its_other_addresses() {
        use std::io::Write;
        let (listener, port) = listening("127.0.0.1:0");
        let answering = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            client.write_all(b"\x15\x03\x03\x00\x02\x02\x28").expect("an alert of TLS");
            listener.set_nonblocking(true).expect("set");
            (client, listener)
        });
        let options = Options::default();
        let url: Url = format!("tcp://127.0.0.1:{port}").parse().expect("a URL");
        let address = &servers(&url, &options).expect("one address")[0];
        let found = |host| Found { place: Arc::clone(address.place()), host };
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut dial = Dial {
            url,
            version: "test",
            options,
            deadline,
            stage: DialStage::Dialling(Attempts::new(vec![found(0), found(0)])),
        };
        let error = loop {
            match dial.advance(deadline) {
                Ok(connected) => assert!(connected.is_none()),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ConnectError::Mismatch(_)), "{error}");
        let (_client, listener) = answering.join().expect("no panic");
        assert!(listener.accept().is_err(), "it was asked once");
    }
}

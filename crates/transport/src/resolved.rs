//! URLs whose servers a resolver names, such as a directory of services or a file.

use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::errors::ConnectError;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::places::answer::Answer;
use crate::places::place::{Bound, Dialling, Each, Finding, Found, Place, Reconnect};
use crate::url::Url;

/// How long a resolver's answer is good. To ask costs a call, where a look-up of DNS costs its cache.
const FRESH: Duration = Duration::from_secs(1);

/// Says where the servers of one name are.
pub trait Resolver: Debug + Send + Sync {
    /// The servers that there are now, in the order in which to try them. It may take any time: it is called in a thread of its
    /// own, and may be called by several at once.
    ///
    /// # Errors
    /// Why none is known, a sentence for the user. [`ConnectError::Unavailable`] if that may change.
    fn resolve(&self) -> Result<Vec<Url>, ConnectError>;
}

/// A URL, displayed as `shown`, that leads to the servers that the resolver names.
#[must_use]
pub fn resolved(shown: &str, resolver: Arc<dyn Resolver>) -> Url {
    Url::of(Arc::new(Name { shown: shown.into(), resolver }))
}

#[derive(Debug, Clone)]
struct Name {
    shown: Arc<str>,
    resolver: Arc<dyn Resolver>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Place for Name {
    fn dial<'a>(&'a self, _options: &'a Options, _pace: &'a Pace) -> Dialling<'a> {
        let text = format!("cannot connect to {self}: there is no server of that name now");
        Box::pin(std::future::ready(Err(ConnectError::Unavailable(text))))
    }

    fn servers<'a>(&'a self, options: &'a Options, each: Each, pace: &'a Pace) -> Finding<'a> {
        Box::pin(async move {
            let resolver = Arc::clone(&self.resolver);
            let failed = |error: io::Error| ConnectError::Unavailable(format!("cannot connect to {self}: {error}"));
            let answer = Answer::ask("nearcall-resolver", move || resolver.resolve()).map_err(failed)?;
            let said = answer.wait(pace.deadline(), pace).await;
            let late = || ConnectError::TimedOut(format!("cannot connect to {self}: nobody said in time where it is"));
            let urls = match said.unwrap_or_else(|| Err(late())) {
                Ok(urls) => urls,
                // In the place of the servers there were: the last of them may have been moved elsewhere.
                Err(error) => return Ok(vec![Nowhere::found(self, error, 0)]),
            };
            let (count, mut found) = (urls.len(), Vec::new());
            for (index, url) in urls.into_iter().enumerate() {
                if each == Each::Server {
                    // Whoever dials it looks its name up.
                    found.push(Found { place: Arc::clone(url.place()), host: index });
                    continue;
                }
                // One whose name takes long to look up leaves time for the others.
                let now = Instant::now();
                let until = now + pace.deadline().saturating_duration_since(now) / (count - index + 1) as u32;
                match within(until, url.place().servers(options, each, pace)).await {
                    Some(Ok(places)) if places.is_empty() => {
                        found.push(Found { place: Arc::clone(url.place()), host: index });
                    }
                    Some(Ok(places)) => {
                        found.extend(places.into_iter().map(|one| Found { place: one.place, host: index }));
                    }
                    Some(Err(error)) => found.push(Nowhere::found(&url, error, index)),
                    None => {
                        let text = format!("cannot connect to {url}: no address for it came in time");
                        found.push(Nowhere::found(&url, ConnectError::TimedOut(text), index));
                    }
                }
            }
            Ok(found)
        })
    }

    fn fresh(&self) -> Duration {
        FRESH
    }

    fn bind(&self, _options: &Options) -> io::Result<Bound> {
        let why = format!("cannot serve {self}: a server listens at a URL of its own, and registers that");
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    fn reconnect(&self) -> Reconnect {
        Reconnect::Costly
    }
}

/// A server whose address was not found.
#[derive(Debug)]
struct Nowhere {
    shown: String,
    why: ConnectError,
}

impl Nowhere {
    fn found(shown: &impl fmt::Display, why: ConnectError, host: usize) -> Found {
        Found { place: Arc::new(Self { shown: shown.to_string(), why }), host }
    }
}

impl fmt::Display for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Place for Nowhere {
    fn dial<'a>(&'a self, _options: &'a Options, _pace: &'a Pace) -> Dialling<'a> {
        Box::pin(std::future::ready(Err(self.why.clone())))
    }

    fn key(&self) -> String {
        format!("{self}: {}", self.why)
    }

    fn bind(&self, _options: &Options) -> io::Result<Bound> {
        Err(io::Error::new(io::ErrorKind::InvalidInput, self.why.to_string()))
    }

    fn reconnect(&self) -> Reconnect {
        Reconnect::Costly
    }
}

/// What comes of `work`, or `None` if it goes on at `until`.
async fn within<T>(until: Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if Instant::now() >= until => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::dial::{connect, servers};

    #[derive(Debug)]
    struct Says(fn() -> Result<Vec<Url>, ConnectError>);

    impl Resolver for Says {
        fn resolve(&self) -> Result<Vec<Url>, ConnectError> {
            (self.0)()
        }
    }

    fn named(says: fn() -> Result<Vec<Url>, ConnectError>) -> Url {
        resolved("by name", Arc::new(Says(says)))
    }

    fn url(text: &str) -> Url {
        text.parse().expect("a URL")
    }

    fn found(says: fn() -> Result<Vec<Url>, ConnectError>) -> Vec<String> {
        let found = servers(&named(says), &Options::default()).expect("servers");
        found.iter().map(ToString::to_string).collect()
    }

    fn failure(says: fn() -> Result<Vec<Url>, ConnectError>, time: Duration) -> ConnectError {
        let options = Options { handshake: time, ..Options::default() };
        connect(&named(says), "test", &options).map(drop).expect_err("nobody is there")
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn the_servers_are_those_that_the_resolver_names() {
        let urls =
            found(|| Ok(vec![url("tcp://127.0.0.1:1"), url("shm://nobody-is-here"), url("tcp://unknown.invalid:1")]));
        assert_eq!(urls, ["tcp://127.0.0.1:1", "shm://nobody-is-here", "tcp://unknown.invalid:1"]);
        let error = failure(|| Ok(vec![url("tcp://127.0.0.1:1"), url("shm://nobody-is-here")]), LONG);
        let text = error.to_string();
        assert!(matches!(error, ConnectError::Unavailable(_)), "{text}");
        assert!(text.contains("servers of by name") && text.contains("127.0.0.1:1") && text.contains("nobody-is-here"));
    }

    #[test]
    fn what_the_resolver_says_instead_is_why_there_is_no_connection() {
        let error = failure(|| Err(ConnectError::Refused("not for you".into())), LONG);
        assert!(matches!(&error, ConnectError::Refused(text) if text == "not for you"), "{error}");
        assert_eq!(found(|| Err(ConnectError::Refused("not for you".into()))), ["by name"]);
        let error = failure(|| Ok(Vec::new()), LONG);
        assert!(error.to_string().contains("no server of that name"), "{error}");
    }

    #[test]
    fn a_resolver_that_does_not_answer_is_not_waited_for() {
        fn stuck() -> Result<Vec<Url>, ConnectError> {
            loop {
                thread::park();
            }
        }
        let error = failure(stuck, Duration::from_millis(20));
        assert!(matches!(error, ConnectError::TimedOut(_)), "{error}");
    }
}

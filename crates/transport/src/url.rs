//! Where a server is, and by which transport.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::frame::paths::misspelled;
use crate::places::place::{Place, Reconnect};
use crate::transports::TABLE;

/// A parsed URL of one of this crate's transports.
#[derive(Debug, Clone)]
pub struct Url {
    place: Arc<dyn Place>,
    /// What users are to read in its place.
    shown: Option<Arc<str>>,
}

/// Why a URL cannot be used; written for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the URL {url:?}: {reason}")]
pub struct BadUrl {
    url: String,
    reason: String,
}

impl Url {
    /// The URL of a place: also of one of a transport that this crate does not know.
    #[must_use]
    pub fn of(place: Arc<dyn Place>) -> Self {
        Self { place, shown: None }
    }

    /// The same, by a name that says more to users than what it is written as.
    #[must_use]
    pub fn shown_as(self, name: &str) -> Self {
        Self { shown: Some(name.into()), ..self }
    }

    /// What to expect of this URL while no server is there.
    #[must_use]
    pub fn reconnect(&self) -> Reconnect {
        self.place.reconnect()
    }

    /// Tells this URL from those of other servers, even if they are displayed alike.
    #[must_use]
    pub fn key(&self) -> String {
        self.place.key()
    }

    /// How long a list of the servers there is good.
    #[must_use]
    pub fn fresh(&self) -> Duration {
        self.place.fresh()
    }

    pub(crate) fn place(&self) -> &Arc<dyn Place> {
        &self.place
    }
}

/// How a URL of that scheme is written, in whatever case the scheme is.
fn form_of(scheme: &str) -> Option<&'static str> {
    TABLE
        .iter()
        .find(|transport| transport.scheme().eq_ignore_ascii_case(scheme))
        .map(|transport| transport.form)
        .filter(|form| form.contains("://"))
}

/// A URL for messages. Some hold a password, in front of an `@`.
fn without_user(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((front, rest)) => match front.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://...@{rest}"),
            None => format!("...@{rest}"),
        },
        None => url.to_owned(),
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(url: &str) -> Result<Self, BadUrl> {
        let bad = |reason: String| BadUrl { url: without_user(url), reason };
        let (scheme, rest) = match (url.split_once("://"), url.strip_suffix(':')) {
            (Some(parts), _) => parts,
            (None, Some(scheme)) => (scheme, ""),
            (None, None) => {
                if let Some(form) = url.split_once(':').and_then(|(scheme, _)| form_of(scheme)) {
                    return Err(bad(format!("two slashes follow the colon: write {form}")));
                }
                return Err(bad("write a scheme in front, such as shm://name, unix:///path or tcp://host:port".into()));
            }
        };
        let Some(transport) = TABLE.iter().find(|transport| transport.scheme() == scheme) else {
            if let Some(form) = form_of(scheme) {
                return Err(bad(format!("the scheme is in lower case: write {form}")));
            }
            if let Some(meant) = TABLE.iter().find(|transport| misspelled(transport.scheme(), scheme)) {
                return Err(bad(format!("{scheme}: is no transport known here: did you mean {}?", meant.form)));
            }
            let forms: Vec<_> = TABLE.iter().map(|transport| transport.form).collect();
            return Err(bad(format!("{scheme}: is no transport known here; there are {}", forms.join(", "))));
        };
        (transport.parse)(transport.scheme(), rest).map(Self::of).map_err(bad)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shown {
            Some(shown) => f.write_str(shown),
            None => self.place.fmt(f),
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
            "nats://host/calc",
            "nats+tls://[::1],host:4223/shop.prices",
        ] {
            assert_eq!(url.parse::<Url>().expect(url).to_string(), url);
        }
    }

    #[test]
    fn a_password_is_not_repeated() {
        for (url, hint) in [
            ("tcp://ada:secret@host:7000", "tcp://...@host:7000"),
            ("nats://secret@host/calc", "nats=NATS"),
            ("nats+tls://ada:secret@host:4222/calc", "nats=NATS"),
            ("secret@host", "...@host"),
        ] {
            let error = url.parse::<Url>().expect_err(url).to_string();
            assert!(error.contains(hint) && !error.contains("secret"), "{error}");
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
            ("ftp://x", "no transport known here; there are shm://name, "),
            ("shmm://calc", "no transport known here: did you mean shm://name?"),
            ("grcp://host:1", "did you mean grpc://host:port?"),
            ("unx:///run/calc.sock", "did you mean unix:///path?"),
            ("shm:/calc", "write shm://name"),
            ("unix:/run/calc.sock", "write unix:///path"),
            ("localhost:7000", "write a scheme in front"),
            ("TCP://127.0.0.1:7000", "in lower case: write tcp://host:port"),
            ("tcp://[::1:7000", "write tcp://[::1]:7000"),
            ("tcp://::1]:7000", "write tcp://[::1]:7000"),
            ("nats://host", "nats://127.0.0.1:4222/calc"),
            ("nats://host/a.*", "without blanks"),
            ("nats://host:x/a", "no port"),
        ] {
            let error = url.parse::<Url>().expect_err(url).to_string();
            assert!(error.contains(hint) && error.contains(url), "{error}");
        }
    }
}

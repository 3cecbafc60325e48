//! A connection to a NATS server.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError};
use nearcall_wire::shown;
use tokio::net::lookup_host;
use tokio::sync::watch;

use crate::errors::ConnectError;
use crate::options::Options;
use crate::options::login::{Login, Proof};
use crate::tls::{Credentials, explain};

/// So many messages of one subscription may wait for this process's own thread.
const WAITING: usize = 4096;

/// The NATS servers of a URL, which are one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    /// Names or addresses, and ports.
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) is_encrypted: bool,
}

/// A connection to a NATS server.
#[derive(Debug, Clone)]
pub(super) struct Broker {
    pub(super) client: Client,
    /// Becomes true when the connection is lost. It does not come back: what was on its way is lost with it.
    lost: watch::Receiver<bool>,
    /// What the NATS server first did not allow.
    denied: watch::Receiver<Option<Denial>>,
}

/// What a NATS server did not allow.
#[derive(Debug, Clone)]
pub(super) struct Denial {
    /// In words for the user.
    pub(super) why: String,
    pub(super) is_of_subscription: bool,
}

impl Servers {
    /// Connects to one of the servers, on behalf of a URL.
    pub(super) async fn connect(&self, url: &str, options: &Options) -> Result<Broker, ConnectError> {
        let login = options.nats.clone().unwrap_or_default();
        let (told, lost) = watch::channel(false);
        let (deny, denied) = watch::channel(None);
        let told = Arc::new((told, deny));
        let may_leave = self.is_encrypted || options.allow_plaintext;
        let addresses = if may_leave { self.names() } else { self.addresses_here(url).await? };
        let mut asked = ConnectOptions::new()
            .name("nearcall")
            .connection_timeout(options.handshake)
            // Who is found through a server may be on another machine.
            .max_reconnects(addresses.len())
            .retain_servers_order()
            .subscription_capacity(WAITING)
            .event_callback(move |event| {
                let (lost, denied) = &*told;
                match event {
                    Event::Disconnected | Event::Closed => _ = lost.send_replace(true),
                    Event::ServerError(ServerError::Other(words)) => {
                        let denial = denial(&words);
                        denied.send_if_modified(|denied| {
                            let is_first = denied.is_none() && denial.is_some();
                            if is_first {
                                *denied = denial;
                            }
                            is_first
                        });
                    }
                    _ => {}
                }
                std::future::ready(())
            });
        if !login.inbox.is_empty() {
            asked = asked.custom_inbox_prefix(&login.inbox);
        }
        if !may_leave {
            asked = asked.ignore_discovered_servers();
        }
        if self.is_encrypted {
            asked = asked.require_tls(true).tls_client_config(Self::tls(url, &login)?);
        }
        let refuse = |why: &dyn Display| ConnectError::Options(format!("cannot use {url}: {why}"));
        asked = match login.proof {
            Proof::Nothing => asked,
            Proof::Password(user, password) => asked.user_and_password(user, password),
            Proof::Token(token) => asked.token(token),
            Proof::Nkey(seed) => asked.nkey(seed),
            // The library's own words could show a part of the file.
            Proof::Credentials(text) => asked.credentials(&text).map_err(|_| {
                refuse(
                    &"NATS(credentials=...) has no user's token and seed in it; `nsc generate creds` makes such a file",
                )
            })?,
        };
        let client = asked.connect(addresses).await.map_err(|error| Self::failure(url, &error))?;
        if !client.server_info().headers {
            return Err(ConnectError::Mismatch(format!("cannot use {url}: the NATS server is older than 2.2")));
        }
        Ok(Broker { client, lost, denied })
    }

    fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|(host, port)| address(host, *port)).collect()
    }

    /// The addresses of the servers, all of which have to be on this machine.
    async fn addresses_here(&self, url: &str) -> Result<Vec<String>, ConnectError> {
        let mut found = Vec::new();
        for (host, port) in &self.hosts {
            let failed =
                |error| ConnectError::Unavailable(format!("cannot connect to {url}: no address for {host}: {error}"));
            for address in lookup_host((&**host, *port)).await.map_err(failed)? {
                if !address.ip().to_canonical().is_loopback() {
                    return Err(ConnectError::Options(format!(
                        "cannot use {url}: {} is not this machine, and this is not encrypted; write nats+tls://, or say allow_plaintext=True if that network can be trusted",
                        address.ip()
                    )));
                }
                found.push(format!("nats://{address}"));
            }
        }
        Ok(found)
    }

    /// What this side of TLS is: here it is always a client.
    fn tls(url: &str, login: &Login) -> Result<rustls::ClientConfig, ConnectError> {
        let refuse = |why: String| ConnectError::Options(format!("cannot use {url}: {why}"));
        let given = login.tls.as_ref().and_then(|credentials| credentials.client.clone());
        let side = match given {
            Some(side) => side,
            None => Credentials::client(None, None, None).map_err(refuse)?.client.expect("it is a client's"),
        };
        if side.server_name.is_some() {
            return Err(refuse(
                "TLS(server_name=...) is not for NATS: connect by a name of the server's certificate".into(),
            ));
        }
        Ok((*side.config).clone())
    }

    /// Why there is no connection, for the user. The library's words hold no secrets.
    fn failure(url: &str, error: &async_nats::ConnectError) -> ConnectError {
        let failed = |why: &dyn Display| format!("cannot connect to {url}: {why}");
        let source = std::error::Error::source(error);
        let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
        if let Some(inner) = io.and_then(std::io::Error::get_ref)
            && let Some(tls) = inner.downcast_ref::<rustls::Error>()
        {
            let why = match tls {
                rustls::Error::InvalidMessage(_) => {
                    "the NATS server there does not speak TLS; write nats://, or give it certificates".into()
                }
                tls => explain(tls, true, None),
            };
            return ConnectError::Untrusted(failed(&why));
        }
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                ConnectError::Refused(failed(
                    &"the NATS server does not take these credentials, or asks for some; give them with nats=NATS(...)",
                ))
            }
            ConnectErrorKind::TimedOut => ConnectError::TimedOut(failed(&"the NATS server did not answer in time")),
            ConnectErrorKind::Tls => ConnectError::Untrusted(failed(error)),
            _ if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) => {
                ConnectError::Unavailable(failed(&"no NATS server listens there; start it first"))
            }
            _ => ConnectError::Unavailable(failed(error)),
        }
    }
}

impl Broker {
    /// Ends when the connection is lost.
    pub(super) async fn lost(&self) {
        _ = self.lost.clone().wait_for(|lost| *lost).await;
    }

    /// Ends when the NATS server has not allowed something.
    pub(super) async fn denied(&self) -> Denial {
        let denied = self.denied.clone().wait_for(Option::is_some).await.ok().and_then(|denied| denied.clone());
        match denied {
            Some(denied) => denied,
            // The connection has gone, and tells of that by itself.
            None => std::future::pending().await,
        }
    }

    /// Waits until the server has everything that was published, but no longer than that.
    pub(super) async fn flush(&self, patience: Duration) {
        _ = tokio::time::timeout(patience, self.client.flush()).await;
    }
}

/// What a NATS server did not allow, if these words of its say that.
fn denial(words: &str) -> Option<Denial> {
    const BEGINNING: &str = "permissions violation for ";
    let (beginning, what) = words.trim_matches('\'').split_at_checked(BEGINNING.len())?;
    if !beginning.eq_ignore_ascii_case(BEGINNING) {
        return None;
    }
    let is_of_subscription = what.starts_with("Subscription");
    let what = what.replacen("Publish to", "publish at", 1).replacen("Subscription to", "subscribe to", 1);
    let why = format!("the NATS server's permissions do not let this user {}", shown(&what));
    Some(Denial { why, is_of_subscription })
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("nats://[{host}]:{port}") } else { format!("nats://{host}:{port}") }
}

impl Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_encrypted { "nats+tls://" } else { "nats://" })?;
        for (index, (host, port)) in self.hosts.iter().enumerate() {
            let shown = address(host, *port);
            write!(f, "{}{}", if index == 0 { "" } else { "," }, &shown["nats://".len()..])?;
        }
        Ok(())
    }
}

//! The way to a program of RMR: where it is, and the connection to it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use nearcall_core::lock::Mutex;

use super::exchange::Exchange;
use super::outlet::Outlet;

/// How long a program is tried to be reached at one address.
const PATIENCE: Duration = Duration::from_secs(1);

/// The way to one program.
pub struct Link {
    exchange: Arc<Exchange>,
    /// Where it may be, as `host:port`; the first that answers counts.
    places: Vec<String>,
    /// Whether it may be on another machine.
    anywhere: bool,
    current: ArcSwapOption<Outlet>,
    connecting: Mutex<()>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Link {
    /// A way that is not used yet. `places` are `host:port`, with commas between them if the program may be at several.
    /// Nothing of RMR is encrypted: unless `anywhere`, it must be on this machine.
    #[must_use]
    pub fn new(exchange: Arc<Exchange>, places: &str, anywhere: bool) -> Arc<Self> {
        let places = places.split(',').map(str::to_owned).collect();
        Arc::new(Self { exchange, places, anywhere, current: ArcSwapOption::empty(), connecting: Mutex::default() })
    }

    /// The connection, if there is one.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Outlet>> {
        self.current.load_full().filter(|outlet| !outlet.is_lost())
    }

    /// The connection; makes it if there is none.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub fn connect(&self) -> io::Result<Arc<Outlet>> {
        if let Some(outlet) = self.current() {
            return Ok(outlet);
        }
        let connecting = self.connecting.lock();
        if let Some(outlet) = self.current() {
            return Ok(outlet);
        }
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for place in &self.places {
            match self.connect_to(place) {
                Ok(outlet) => {
                    self.current.store(Some(Arc::clone(&outlet)));
                    return Ok(outlet);
                }
                Err(error) => failure = error,
            }
        }
        drop(connecting);
        Err(failure)
    }

    fn connect_to(&self, place: &str) -> io::Result<Arc<Outlet>> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot connect to rmr://{place}: {error}"));
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for address in place.to_socket_addrs().map_err(named)? {
            if !self.anywhere && !address.ip().is_loopback() {
                failure = refused(&address);
                continue;
            }
            match TcpStream::connect_timeout(&address, PATIENCE).and_then(|socket| self.exchange.adopt(socket)) {
                Ok(outlet) => return Ok(outlet),
                Err(error) => failure = error,
            }
        }
        Err(named(failure))
    }

    /// Gives the connection up.
    pub fn close(&self) {
        if let Some(outlet) = self.current.swap(None) {
            outlet.lose();
        }
    }
}

fn refused(address: &SocketAddr) -> io::Error {
    let text = format!("{address} is not on this machine, and RMR does not encrypt: say allow_plaintext=True");
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

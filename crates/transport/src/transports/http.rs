//! `http://host:port`, `https://host:port` and `http+unix:///path`: the protocols of browsers, `curl` and gRPC's
//! clients, over HTTP/1.1 and HTTP/2. nearcall's own clients speak Connect here.

use std::sync::Arc;

use super::address::Address;
use super::tcp::Plain;
use super::tls::Encrypted;
use super::unix::socket_at;
use crate::handshake::Web;
use crate::places::place::{Place, Transport};

#[derive(Debug)]
pub(super) struct Http;

impl Transport for Http {
    fn form(&self) -> &'static str {
        "http://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, protocol) = (self.scheme(), &Web);
        Ok(Arc::new(Plain { scheme, address: Address::parse(scheme, rest)?, protocol }))
    }
}

#[derive(Debug)]
pub(super) struct Https;

impl Transport for Https {
    fn form(&self) -> &'static str {
        "https://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, protocol) = (self.scheme(), &Web);
        Ok(Arc::new(Encrypted { scheme, address: Address::parse(scheme, rest)?, protocol }))
    }
}

#[derive(Debug)]
pub(super) struct HttpUnix;

impl Transport for HttpUnix {
    fn form(&self) -> &'static str {
        "http+unix:///path"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        Ok(Arc::new(socket_at(self.scheme(), rest, &Web)?))
    }
}

//! `grpc://host:port`, `grpcs://host:port` with encryption, and `grpc+unix:///path`: gRPC over HTTP/2.

use std::sync::Arc;

use super::address::Address;
use super::tcp::Plain;
use super::tls::Encrypted;
use super::unix::socket_at;
use crate::handshake;
use crate::places::place::{Place, Transport};

#[derive(Debug)]
pub(super) struct Grpc;

impl Transport for Grpc {
    fn form(&self) -> &'static str {
        "grpc://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, protocol) = (self.scheme(), &handshake::Grpc);
        Ok(Arc::new(Plain { scheme, address: Address::parse(scheme, rest)?, protocol }))
    }
}

#[derive(Debug)]
pub(super) struct Grpcs;

impl Transport for Grpcs {
    fn form(&self) -> &'static str {
        "grpcs://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, protocol) = (self.scheme(), &handshake::Grpc);
        Ok(Arc::new(Encrypted { scheme, address: Address::parse(scheme, rest)?, protocol }))
    }
}

#[derive(Debug)]
pub(super) struct GrpcUnix;

impl Transport for GrpcUnix {
    fn form(&self) -> &'static str {
        "grpc+unix:///path"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        Ok(Arc::new(socket_at(self.scheme(), rest, &handshake::Grpc)?))
    }
}

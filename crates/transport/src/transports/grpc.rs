//! `grpc://host:port`, `grpcs://host:port` with encryption, and `grpc+unix:///path`: gRPC over HTTP/2.

use super::hosts::Hosts;
use super::local::Local;
use crate::handshake;
use crate::places::place::{Speaks, Transport};

pub(super) const GRPC: Transport =
    Transport::new("grpc://host:port", |scheme, rest| Hosts::plain(scheme, rest, &handshake::GRPC))
        .speaking(Speaks::Grpc);

pub(super) const GRPCS: Transport =
    Transport::new("grpcs://host:port", |scheme, rest| Hosts::encrypted(scheme, rest, &handshake::GRPC))
        .speaking(Speaks::Grpc)
        .encrypted();

pub(super) const GRPC_UNIX: Transport =
    Transport::new("grpc+unix:///path", |scheme, rest| Local::at(scheme, rest, &handshake::GRPC))
        .speaking(Speaks::Grpc);

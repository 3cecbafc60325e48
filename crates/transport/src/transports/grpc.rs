//! `grpc://host:port`, `grpcs://host:port` with encryption, and `grpc+unix:///path`: gRPC over HTTP/2.

use super::hosts::Hosts;
use super::local::Local;
use crate::handshake;
use crate::places::place::{Speaks, Transport};

pub(super) const GRPC: Transport = Transport {
    form: "grpc://host:port",
    speaks: Speaks::Grpc,
    encrypts: false,
    parse: |scheme, rest| Hosts::plain(scheme, rest, &handshake::GRPC),
};

pub(super) const GRPCS: Transport = Transport {
    form: "grpcs://host:port",
    speaks: Speaks::Grpc,
    encrypts: true,
    parse: |scheme, rest| Hosts::encrypted(scheme, rest, &handshake::GRPC),
};

pub(super) const GRPC_UNIX: Transport = Transport {
    form: "grpc+unix:///path",
    speaks: Speaks::Grpc,
    encrypts: false,
    parse: |scheme, rest| Local::at(scheme, rest, &handshake::GRPC),
};

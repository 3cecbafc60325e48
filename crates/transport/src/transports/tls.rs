//! `tls://host:port`: TCP with encryption.

use super::hosts::Hosts;
use crate::handshake::NATIVE;
use crate::places::place::{Speaks, Transport};

pub(super) const TLS: Transport = Transport {
    form: "tls://host:port",
    speaks: Speaks::Nearcall,
    encrypts: true,
    parse: |scheme, rest| Hosts::encrypted(scheme, rest, &NATIVE),
};

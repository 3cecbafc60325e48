//! `tcp://host:port`: TCP without encryption.

use super::hosts::Hosts;
use crate::handshake::NATIVE;
use crate::places::place::{Speaks, Transport};

pub(super) const TCP: Transport = Transport {
    form: "tcp://host:port",
    speaks: Speaks::Nearcall,
    encrypts: false,
    parse: |scheme, rest| Hosts::plain(scheme, rest, &NATIVE),
};

//! `tls://host:port`: TCP with encryption.

use super::hosts::Hosts;
use crate::handshake::NATIVE;
use crate::places::place::Transport;

pub(super) const TLS: Transport =
    Transport::new("tls://host:port", |scheme, rest| Hosts::encrypted(scheme, rest, &NATIVE)).encrypted();

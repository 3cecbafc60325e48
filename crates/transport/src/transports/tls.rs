//! `tls://host:port`: TCP with encryption.

use super::hosts::Hosts;
use crate::handshake::NATIVE;
use crate::places::place::Transport;

pub(super) const TLS: Transport =
    Transport { form: "tls://host:port", parse: |scheme, rest| Hosts::encrypted(scheme, rest, &NATIVE) };

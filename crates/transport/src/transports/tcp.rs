//! `tcp://host:port`: TCP without encryption.

use super::hosts::Hosts;
use crate::handshake::NATIVE;
use crate::places::place::Transport;

pub(super) const TCP: Transport = Transport::new("tcp://host:port", |scheme, rest| Hosts::plain(scheme, rest, &NATIVE));

//! `unix:///path`: a Unix socket.

use super::local::Local;
use crate::handshake::NATIVE;
use crate::places::place::Transport;

pub(super) const UNIX: Transport = Transport::new("unix:///path", |scheme, path| Local::at(scheme, path, &NATIVE));

//! `unix:///path`: a Unix socket.

use super::local::Local;
use crate::handshake::NATIVE;
use crate::places::place::{Speaks, Transport};

pub(super) const UNIX: Transport = Transport {
    form: "unix:///path",
    speaks: Speaks::Nearcall,
    encrypts: false,
    parse: |scheme, path| Local::at(scheme, path, &NATIVE),
};

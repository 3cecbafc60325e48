//! `http://host:port`, `https://host:port` and `http+unix:///path`: the protocols of browsers, `curl` and gRPC's
//! clients, over HTTP/1.1 and HTTP/2. nearcall's own clients speak Connect here.

use super::hosts::Hosts;
use super::local::Local;
use crate::handshake;
use crate::places::place::{Speaks, Transport};

pub(super) const HTTP: Transport =
    Transport::new("http://host:port", |scheme, rest| Hosts::plain(scheme, rest, &handshake::WEB))
        .speaking(Speaks::Http);

pub(super) const HTTPS: Transport =
    Transport::new("https://host:port", |scheme, rest| Hosts::encrypted(scheme, rest, &handshake::WEB))
        .speaking(Speaks::Http)
        .encrypted();

pub(super) const HTTP_UNIX: Transport =
    Transport::new("http+unix:///path", |scheme, rest| Local::at(scheme, rest, &handshake::WEB)).speaking(Speaks::Http);

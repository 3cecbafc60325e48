//! `http://host:port`, `https://host:port` and `http+unix:///path`: the protocols of browsers, `curl` and gRPC's
//! clients, over HTTP/1.1 and HTTP/2. nearcall's own clients speak Connect here.

use super::hosts::Hosts;
use super::local::Local;
use crate::handshake;
use crate::places::place::{Speaks, Transport};

pub(super) const HTTP: Transport = Transport {
    form: "http://host:port",
    speaks: Speaks::Http,
    encrypts: false,
    parse: |scheme, rest| Hosts::plain(scheme, rest, &handshake::WEB),
};

pub(super) const HTTPS: Transport = Transport {
    form: "https://host:port",
    speaks: Speaks::Http,
    encrypts: true,
    parse: |scheme, rest| Hosts::encrypted(scheme, rest, &handshake::WEB),
};

pub(super) const HTTP_UNIX: Transport = Transport {
    form: "http+unix:///path",
    speaks: Speaks::Http,
    encrypts: false,
    parse: |scheme, rest| Local::at(scheme, rest, &handshake::WEB),
};

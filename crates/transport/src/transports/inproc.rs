//! `inproc://name`: inside one process, for tests.

use super::local::{Found, Local};
use crate::places::place::{Speaks, Transport};

pub(super) const INPROC: Transport = Transport {
    form: "inproc://name",
    speaks: Speaks::Nearcall,
    encrypts: false,
    parse: |scheme, name| Local::named(scheme, name, Found::InProcess),
};

//! `shm://name`: shared memory between processes of one user on one machine.

use super::local::{Found, Local};
use crate::places::place::{Speaks, Transport};

pub(super) const SHM: Transport = Transport {
    form: "shm://name",
    speaks: Speaks::Nearcall,
    encrypts: false,
    parse: |scheme, name| Local::named(scheme, name, Found::ByUser),
};

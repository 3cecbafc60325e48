//! `inproc://name`: inside one process, for tests.

use super::local::{FoundBy, Local};
use crate::places::place::Transport;

pub(super) const INPROC: Transport =
    Transport::new("inproc://name", |scheme, name| Local::named(scheme, name, FoundBy::InProcess));

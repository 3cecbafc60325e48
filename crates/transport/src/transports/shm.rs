//! `shm://name`: shared memory between processes of one user on one machine.

use super::local::{FoundBy, Local};
use crate::places::place::Transport;

pub(super) const SHM: Transport =
    Transport::new("shm://name", |scheme, name| Local::named(scheme, name, FoundBy::ByUser));

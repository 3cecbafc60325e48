//! What a client of TLS remembers of servers, for quicker handshakes.

use std::sync::Arc;

use nearcall_platform::per_process::PerProcess;
use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

/// As many as rustls keeps by itself.
const MAX_SESSIONS: usize = 256;

/// Each process has its own. `rustls` keeps them behind a lock of the standard library, and a forked child inherits that
/// as its parent's threads have left it: if one of them held it, the child would wait for ever. And a ticket is to be
/// shown once, not by parent and child.
#[derive(Debug)]
struct Sessions(PerProcess<ClientSessionMemoryCache>);

/// Sessions for the clients of one configuration.
pub(super) fn resumption() -> Resumption {
    Resumption::store(Arc::new(Sessions::new()))
}

impl Sessions {
    fn new() -> Self {
        Self(PerProcess::new(|| ClientSessionMemoryCache::new(MAX_SESSIONS)))
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.0.with(|own| own.set_kx_hint(server_name, group));
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.with(|own| own.kx_hint(server_name))
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.with(|own| own.set_tls12_session(server_name, value));
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.with(|own| own.tls12_session(server_name))
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.0.with(|own| own.remove_tls12_session(server_name));
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.with(|own| own.insert_tls13_ticket(server_name, value));
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.with(|own| own.take_tls13_ticket(server_name))
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::{AtomicBool, Ordering};

    use super::*;
    use crate::forked::holds_in_child;

    const FORKS: usize = 200;

    /// Forks while other threads use the store all the time. Whether each child could use it, too.
    fn children_get_at(store: &(impl ClientSessionStore + 'static)) -> bool {
        let name = ServerName::try_from("localhost").expect("a name");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                // Relaxed: nothing hangs on it.
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        store.set_kx_hint(name.clone(), NamedGroup::X25519);
                    }
                });
            }
            let all = (0..FORKS).all(|_| {
                holds_in_child(|| {
                    let _ = store.kx_hint(&name);
                    true
                })
            });
            over.store(true, Ordering::Relaxed);
            all
        })
    }

    #[test]
    fn a_forked_child_does_not_wait_for_its_parents_threads() {
        assert!(children_get_at(&Sessions::new()));
    }
}

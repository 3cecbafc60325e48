//! Calls to several servers.
//!
//! Each server has its own subchannel. A picker chooses among those that are connected, call by call. A thread of its own dials each of
//! the others; the next call starts it once the pause after the last failure is over. So no call waits for a server
//! while another one is connected, and a client that makes no calls does nothing.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use nearcall_platform::lock::{Condvar, Mutex};
use nearcall_platform::per_process::PerProcess;
use nearcall_transport::{Options, Url, servers};
use nearcall_wire::Failure;
use smallvec::SmallVec;

use crate::client::channel::patience::{OnChange, Patience, SLICE};
use crate::client::channel::picker::{Picked, Picker};
use crate::client::channel::subchannel::{Subchannel, connect_failure, may_pass, remembered};
use crate::client::connection::closed;
use crate::client::{Adopter, Connection};
use crate::sync::{AtomicBool, Ordering};

/// The pause before names are looked up again while a known server is not connected.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Makes connections to all servers at a URL.
pub(in crate::client) struct Balancer {
    this: Weak<Self>,
    url: Url,
    options: Options,
    on_change: OnChange,
    endpoints: ArcSwap<Vec<Arc<Endpoint>>>,
    picker: Box<dyn Picker>,
    closed: AtomicBool,
    /// The description that all servers in use share.
    description: ArcSwapOption<String>,
    progress: PerProcess<Progress>,
    /// The server of this process that receives in place of waiting callers, if the servers may call this client.
    adopter: OnceLock<Arc<dyn Adopter>>,
}

/// One server, and the connections to it.
struct Endpoint {
    key: String,
    subchannel: Subchannel,
}

/// What the threads of this process are doing.
#[derive(Default)]
struct Progress {
    /// Notified of every change; callers that wait for a connection sleep on it.
    changed: Condvar,
    state: Mutex<BalancerState>,
}

#[derive(Default)]
struct BalancerState {
    /// A thread looks names up.
    looking: bool,
    /// When names were looked up last, and why that failed if it did.
    looked: Option<Instant>,
    trouble: Option<Failure>,
    /// The endpoints that a thread dials.
    dialling: HashSet<String>,
    /// The dialled endpoints whose server has the shared description.
    agreed: HashSet<String>,
}

/// What a thread of its own does: it dials an endpoint, or, without one, looks names up. When this is dropped, however it
/// ended, or if the thread could not be started, clears its mark, and wakes the callers that wait.
struct Task {
    balancer: Arc<Balancer>,
    endpoint: Option<Arc<Endpoint>>,
}

impl Task {
    fn start(self, name: &str) -> io::Result<()> {
        thread::Builder::new().name(name.into()).spawn(move || self.run()).map(drop)
    }

    fn run(&self) {
        let Some(endpoint) = &self.endpoint else { return self.balancer.look_up() };
        // The subchannel keeps the failure.
        let _ = endpoint.subchannel.usable(Patience::FailFast, None, &mut || !self.balancer.is_closed());
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let progress = self.balancer.progress.get();
        {
            let mut state = progress.state.lock();
            if let Some(Endpoint { key, .. }) = self.endpoint.as_deref() {
                state.dialling.remove(key);
                state.agreed.remove(key);
            } else {
                state.looking = false;
                state.looked = Some(Instant::now());
            }
        }
        progress.changed.notify_all();
    }
}

impl Balancer {
    pub(in crate::client) fn new(
        url: Url,
        options: Options,
        picker: Box<dyn Picker>,
        on_change: OnChange,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            url,
            options,
            on_change,
            endpoints: ArcSwap::default(),
            picker,
            closed: AtomicBool::new(false),
            description: ArcSwapOption::empty(),
            progress: PerProcess::new(Progress::default),
            adopter: OnceLock::new(),
        })
    }

    /// The connection for the next call; none that its copies have gone to, `asked`, as long as there is another one.
    pub(in crate::client) fn ready(&self, asked: &[Arc<Connection>]) -> Option<Arc<Connection>> {
        let endpoints = self.endpoints.load();
        // Guards, which do not count as owners: a call counts only the connection that it takes.
        let held: SmallVec<[_; 8]> = endpoints.iter().filter_map(|endpoint| endpoint.subchannel.peek()).collect();
        if held.len() < endpoints.len() || endpoints.is_empty() || self.is_stale() {
            self.tend();
        }
        let mut ready: SmallVec<[&Arc<Connection>; 8]> = held.iter().filter_map(|held| held.as_ref()).collect();
        let is_asked = |one: &Arc<Connection>| asked.iter().any(|other| Arc::ptr_eq(one, other));
        if !asked.is_empty() && !ready.iter().all(|one| is_asked(one)) {
            ready.retain(|one| !is_asked(one));
        }
        let index = if ready.is_empty() { 0 } else { self.picker.pick(&Picked { asked }, &ready) };
        ready.get(index).map(|connection| Arc::clone(connection))
    }

    pub(in crate::client) fn connections(&self) -> Vec<Arc<Connection>> {
        self.endpoints.load().iter().filter_map(|endpoint| endpoint.subchannel.ready()).collect()
    }

    pub(in crate::client) fn current(&self) -> Option<Arc<Connection>> {
        let endpoints = self.endpoints.load();
        let ready = endpoints.iter().find_map(|endpoint| endpoint.subchannel.ready());
        ready.or_else(|| endpoints.iter().find_map(|endpoint| endpoint.subchannel.current()))
    }

    /// As [`crate::client::Channel::usable`].
    pub(in crate::client) fn usable(
        &self,
        patience: Patience,
        until: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Arc<Connection>>, Failure> {
        loop {
            if self.is_closed() {
                return Err(closed(&self.url));
            }
            // `ready` also starts the dials that are due.
            if let Some(connection) = self.ready(&[]) {
                return Ok(Some(connection));
            }
            let progress = self.progress.get();
            let failure = self.failure(&progress);
            let mut state = progress.state.lock();
            let now = Instant::now();
            let over = until.is_some_and(|until| now >= until);
            let busy = state.looking || !state.dialling.is_empty();
            match failure {
                Some(failure) if !busy && (over || patience.has_ended() || !may_pass(&failure)) => return Err(failure),
                Some(failure) if over => return Err(failure),
                None if over => return Ok(None),
                _ => {}
            }
            let end = until.map_or(now + SLICE, |until| until.min(now + SLICE));
            // Connected and not busy: the dialling thread has just ended and does not notify again, so do not sleep.
            if busy || self.connections().is_empty() {
                progress.changed.wait_for(&mut state, end.saturating_duration_since(now));
            }
            drop(state);
            if self.connections().is_empty() && !go_on() {
                return Err(Failure::new(Failure::CANCELLED, "interrupted while connecting"));
            }
        }
    }

    /// Whether names are to be looked up again.
    fn is_stale(&self) -> bool {
        let progress = self.progress.get();
        // If the lock is taken, do not wait for it: a later call asks again.
        progress
            .state
            .try_lock()
            .is_some_and(|state| state.looked.is_none_or(|looked| looked.elapsed() >= self.url.fresh()))
    }

    /// Starts the threads that are due: one to look names up, and one for each server that is not connected.
    #[cold]
    fn tend(&self) {
        let Some(this) = self.this.upgrade().filter(|_| !self.is_closed()) else { return };
        let endpoints = self.endpoints.load_full();
        let progress = self.progress.get();
        let now = Instant::now();
        // Before the lock: the subchannels have locks of their own.
        let lost: Vec<_> = endpoints.iter().filter(|endpoint| !endpoint.subchannel.is_ready()).cloned().collect();
        let due: Vec<_> =
            lost.iter().filter(|endpoint| endpoint.subchannel.failure().is_none_or(|(.., next)| now >= next)).collect();
        let (look, dial) = {
            let mut state = progress.state.lock();
            let pause = if lost.is_empty() { self.url.fresh() } else { LOOK_AGAIN };
            let look = !state.looking && state.looked.is_none_or(|looked| looked.elapsed() >= pause);
            state.looking |= look;
            let dial: Vec<_> =
                due.into_iter().filter(|endpoint| state.dialling.insert(endpoint.key.clone())).cloned().collect();
            (look, dial)
        };
        let task = |endpoint| Task { balancer: Arc::clone(&this), endpoint };
        if look && let Err(error) = task(None).start("nearcall-look-up") {
            let failure = Failure::new(Failure::UNAVAILABLE, format!("cannot look {} up: {error}", self.url));
            progress.state.lock().trouble = Some(failure);
        }
        for endpoint in dial {
            // If it cannot be started, the next call tries again.
            let _ = task(Some(endpoint)).start("nearcall-dial");
        }
    }

    /// Finds out which servers there are.
    fn look_up(&self) {
        let found = servers(&self.url, &self.options);
        let progress = self.progress.get();
        let urls = match found {
            Ok(urls) => urls,
            Err(error) => {
                progress.state.lock().trouble = Some(connect_failure(&error, self.options.handshake));
                return;
            }
        };
        let known = self.endpoints.load_full();
        let mut endpoints: Vec<Arc<Endpoint>> = Vec::with_capacity(urls.len());
        for url in urls {
            let key = url.key();
            if endpoints.iter().any(|endpoint| endpoint.key == key) {
                continue;
            }
            let endpoint = known.iter().find(|endpoint| endpoint.key == key).cloned();
            endpoints.push(endpoint.unwrap_or_else(|| self.endpoint(key, url)));
        }
        progress.state.lock().trouble = None;
        // A server that has left the list gets no new calls. Its connection ends with its last call.
        self.endpoints.store(Arc::new(endpoints));
        // The new endpoints have missed an earlier `close` or `serve_with`: repeat it for them.
        if self.is_closed() {
            self.close(None);
        }
        if let Some(adopter) = self.adopter.get() {
            self.adopt(adopter);
        }
        // No dial of the new endpoints has begun, and callers may wait for one.
        self.tend();
    }

    fn endpoint(&self, key: String, url: Url) -> Arc<Endpoint> {
        let (this, own) = (self.this.clone(), key.clone());
        let agree =
            move |_: Option<&str>, new: &str| this.upgrade().map_or(Ok(()), |balancer| balancer.agree(&own, new));
        Arc::new(Endpoint { key, subchannel: Subchannel::new(url, self.options.clone(), Box::new(agree)) })
    }

    /// Refuses a server whose description differs from that of the servers in use. If none is in use, its description
    /// becomes the shared one, unless `on_change` refuses it.
    fn agree(&self, key: &str, description: &str) -> Result<(), Failure> {
        let progress = self.progress.get();
        let earlier = {
            let mut state = progress.state.lock();
            let earlier = self.description.load_full();
            let is_new = earlier.as_ref().is_some_and(|earlier| **earlier != *description);
            let others =
                self.endpoints.load().iter().any(|endpoint| endpoint.key != key && endpoint.subchannel.is_ready());
            if is_new && (others || state.agreed.iter().any(|other| other != key)) {
                let text = format!(
                    "a server of {} describes itself otherwise than those that are in use: calls go to these until none \
                     of them is left",
                    self.url
                );
                return Err(Failure::new(Failure::UNAVAILABLE, text));
            }
            state.agreed.insert(key.to_owned());
            if is_new || earlier.is_none() {
                self.description.store(Some(Arc::new(description.to_owned())));
            }
            earlier.filter(|_| is_new)
        };
        let Some(earlier) = earlier else { return Ok(()) };
        (self.on_change)(description).inspect_err(|_| {
            let mut state = progress.state.lock();
            state.agreed.remove(key);
            self.description.store(Some(earlier));
        })
    }

    /// Why there is no connection, as far as is known.
    fn failure(&self, progress: &Progress) -> Option<Failure> {
        let endpoints = self.endpoints.load();
        let failures: Vec<_> = endpoints.iter().filter_map(|endpoint| endpoint.subchannel.failure()).collect();
        if failures.len() < endpoints.len() || failures.is_empty() {
            return progress.state.lock().trouble.clone();
        }
        let (at, next) = failures
            .iter()
            .fold((failures[0].1, failures[0].2), |(at, next), failure| (at.max(failure.1), next.min(failure.2)));
        let mut said: Vec<&str> = Vec::new();
        for (failure, ..) in &failures {
            if !said.contains(&&*failure.message) {
                said.push(&failure.message);
            }
        }
        let (first, ..) = failures.iter().find(|(failure, ..)| may_pass(failure)).unwrap_or(&failures[0]);
        let message = match &said[..] {
            [only] => (*only).to_owned(),
            all => format!("none of the servers of {} can be used: {}", self.url, all.join("; ")),
        };
        Some(remembered(&Failure { message, ..first.clone() }, at, Some(next)))
    }

    pub(in crate::client) fn serve_with(&self, adopter: Arc<dyn Adopter>) {
        // The first adopter stays: a channel has one.
        let _ = self.adopter.set(adopter);
        if let Some(adopter) = self.adopter.get() {
            self.adopt(adopter);
        }
    }

    fn adopt(&self, adopter: &Arc<dyn Adopter>) {
        for endpoint in self.endpoints.load().iter() {
            endpoint.subchannel.serve_with(Arc::clone(adopter));
        }
    }

    pub(in crate::client) fn close(&self, failure: Option<&Failure>) -> bool {
        // SeqCst, like the list: either `look_up` sees the flag after it has stored its list, or `close` sees that
        // list.
        self.closed.store(true, Ordering::SeqCst);
        let cut_short =
            self.endpoints.load_full().iter().filter(|endpoint| !endpoint.subchannel.close(failure)).count();
        self.progress.get().changed.notify_all();
        cut_short == 0
    }

    pub(in crate::client) fn is_closed(&self) -> bool {
        // SeqCst: as above.
        self.closed.load(Ordering::SeqCst)
    }
}

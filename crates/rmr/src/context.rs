//! What `rmr_init` makes: sockets, a table, and the threads that serve them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use nearcall_core::lock::{Condvar, Mutex};
use nearcall_route::rmr::{Exchange, Limits, Link};
use nearcall_route::table::{Own, Table};

use crate::arrivals::{Arrivals, Taker};
use crate::buffer::Source;
use crate::settings::{bind_host, source};
use crate::sync::{AtomicBool, AtomicI32, Ordering};

/// Bytes of the longest message that is taken, whatever a program says is usual: RMR has no limit.
const LONGEST: usize = 256 << 20;
/// Bytes of a payload, unless the program says how many are usual.
const USUAL: usize = 2048;

/// What a program holds after `rmr_init`.
pub(crate) struct Context {
    pub(crate) source: Source,
    /// Bytes of a payload for which room is made if a program does not say how many it wants.
    pub(crate) payload: usize,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) table: ArcSwapOption<InForce>,
    links: Mutex<HashMap<String, Arc<Link>>>,
    /// Ways that programs have opened by themselves.
    pub(crate) wormholes: Mutex<Vec<Option<Arc<Link>>>>,
    /// Bytes of trace data in new messages.
    pub(crate) trace: AtomicI32,
    /// Milliseconds for which a sender waits for room.
    pub(crate) patience: AtomicI32,
    /// It is ready without a table.
    pub(crate) tableless: AtomicBool,
    ended: Mutex<bool>,
    end: Condvar,
}

/// A table, and the ways to those that it names.
pub(crate) struct InForce {
    pub(crate) table: Table,
    pub(crate) links: Vec<Arc<Link>>,
}

impl Context {
    /// One that takes messages at a port.
    pub(crate) fn new(port: u16, payload: i32, name_only: bool) -> std::io::Result<Arc<Self>> {
        let too_long = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
        let host = bind_host();
        let listener = TcpListener::bind(format!("{host}:{port}"))?;
        let port = listener.local_addr()?.port();
        let source = source(&port.to_string(), name_only).ok_or_else(too_long)?;
        let arrivals = Arrivals::new()?;
        let exchange = Exchange::new(Limits::usual(LONGEST), Box::new(Taker(Arc::clone(&arrivals))))?;
        exchange.listen(listener)?;
        let room = Arc::downgrade(&exchange);
        arrivals.set_on_room(Box::new(move || _ = room.upgrade().map(|exchange| exchange.room())));
        let worker = Arc::clone(&exchange);
        std::thread::Builder::new().name("rmr-sockets".to_owned()).spawn(move || worker.work())?;
        Ok(Arc::new(Self {
            source,
            payload: usize::try_from(payload).ok().filter(|&payload| payload > 0).unwrap_or(USUAL),
            exchange,
            arrivals,
            table: ArcSwapOption::empty(),
            links: Mutex::default(),
            wormholes: Mutex::default(),
            trace: AtomicI32::new(0),
            patience: AtomicI32::new(1),
            tableless: AtomicBool::new(false),
            ended: Mutex::new(false),
            end: Condvar::new(),
        }))
    }

    /// The way to `host:port`, whether there is a connection or not.
    pub(crate) fn link(&self, place: &str) -> Arc<Link> {
        let mut links = self.links.lock();
        let make = || Link::new(Arc::clone(&self.exchange), place.strip_prefix("rmr://").unwrap_or(place), true);
        Arc::clone(links.entry(place.to_owned()).or_insert_with(make))
    }

    /// Puts a table in force, or changes of the one in force.
    ///
    /// # Errors
    /// Why it cannot be used; the one before stays in force.
    pub(crate) fn install(&self, text: &str) -> Result<(), String> {
        let mut names = vec![self.source.name.clone(), self.source.address.clone()];
        // A program knows itself at this machine's other names by its port only.
        if let Some((_, port)) = self.source.name.rsplit_once(':') {
            names.extend(["127.0.0.1", "localhost"].map(|host| format!("{host}:{port}")));
        }
        let own = Own { names };
        let before = self.table.load();
        let empty = Table::empty();
        let table = Table::parse_text(text, &own, before.as_ref().map_or(&empty, |in_force| &in_force.table));
        let table = table.map_err(|error| error.to_string())?;
        let links = table.endpoints().iter().map(|name| self.link(name)).collect();
        self.table.store(Some(Arc::new(InForce { table, links })));
        Ok(())
    }

    pub(crate) fn is_ready(&self) -> bool {
        // Relaxed: it is set before anybody else has the context.
        self.tableless.load(Ordering::Relaxed)
            || self.table.load().as_ref().is_some_and(|in_force| in_force.table.is_complete())
    }

    /// Sleeps, unless the context is closed. Whether it is not.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let mut ended = self.ended.lock();
        if !*ended {
            self.end.wait_for(&mut ended, time);
        }
        !*ended
    }

    pub(crate) fn close(&self) {
        *self.ended.lock() = true;
        self.end.notify_all();
        self.arrivals.close();
        self.exchange.close();
    }
}

/// The context that a program names. It is never freed, since other threads may still use it.
pub(crate) fn named<'a>(context: *mut c_void) -> Option<&'a Arc<Context>> {
    // SAFETY: programs pass null, or what `given` has returned.
    unsafe { context.cast::<Arc<Context>>().as_ref() }
}

/// Gives a context to a program.
pub(crate) fn given(context: Arc<Context>) -> *mut c_void {
    Box::into_raw(Box::new(context)).cast()
}

//! Object references that cross a connection while a value is encoded or decoded: objects given to the other side, and
//! references taken from it.

use std::any::Any;
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::sync::Arc;

use nearcall_core::client::Connection as Core;
use nearcall_core::lock::Mutex;
use nearcall_core::{Incoming, given_in, left_over};
use pyo3::prelude::*;

use crate::calls::calling::{Calling, Limits, Way};
use crate::calls::target::Hold;
use crate::gil::interpreter::detached;
use crate::values::encoded::Encoded;
use crate::values::unsent::Unsent;

/// What this crate attaches to a connection, or to the half of a server's connection that makes calls.
pub(crate) struct Attached {
    /// The name of the other end.
    pub(crate) name: Arc<str>,
    /// The base for calls of the other side's objects. It names no object yet.
    pub(crate) calling: Calling,
    /// The object that Python keeps with the connection.
    pub(crate) held: Mutex<Option<Py<PyAny>>>,
}

/// The references that cross one connection while one value is encoded or decoded.
struct Crossing {
    hold: Hold,
    attached: Arc<Attached>,
    /// Numbers of the objects that were given with the value.
    given: Vec<NonZeroU64>,
    /// Numbers of the references that the decoder has taken out of the value.
    taken: Vec<NonZeroU64>,
}

thread_local! {
    /// The crossing of the value that this thread encodes or decodes now.
    static CROSSING: RefCell<Option<Crossing>> = const { RefCell::new(None) };
}

/// Restores the earlier crossing.
struct Restore(Option<Crossing>);

impl Restore {
    fn leave(mut self) -> Option<Crossing> {
        let before = self.0.take();
        let crossing = CROSSING.replace(before);
        std::mem::forget(self);
        crossing
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Reached only after a panic: `leave` forgets the guard.
        CROSSING.set(self.0.take());
    }
}

fn enter(core: &Arc<Core>, calling: &Calling) -> Restore {
    let attached = attached(core, calling);
    let hold = if calling.serves { Hold::Server(Arc::downgrade(core)) } else { Hold::Client(Arc::clone(core)) };
    Restore(CROSSING.replace(Some(Crossing { hold, attached, given: Vec::new(), taken: Vec::new() })))
}

fn attached(core: &Arc<Core>, calling: &Calling) -> Arc<Attached> {
    let make = || -> Box<dyn Any + Send + Sync> {
        // `Way::Nowhere`: the channel keeps its connection, and the connection keeps this `Attached`, so neither would
        // ever be freed if this kept the channel. No `own` limit: it belongs to the method that was called first, not
        // to the objects that cross later.
        let limits = Limits { own: None, ..calling.limits };
        // What a client says of its methods is not said of objects.
        let mut calling = Calling {
            way: Way::Nowhere,
            limits,
            wait_for_ready: false,
            retries: None,
            copies: None,
            ..calling.clone()
        };
        if calling.waiting.is_threads()
            && let Some(of_callbacks) = calling.of_callbacks.lock().clone()
        {
            // Coroutines that call the other side's objects run in the event loop of the server that receives here.
            calling.waiting = of_callbacks;
        }
        Box::new(Arc::new(Attached { name: core.name().into(), calling, held: Mutex::default() }))
    };
    let attached = core.attached(make).downcast_ref::<Arc<Attached>>();
    Arc::clone(attached.expect("nothing else is attached to connections"))
}

/// Encodes a value for a connection. If it may hold `references`, the objects given with it are taken back unless the
/// message is sent.
#[inline]
pub(crate) fn encoding<'py>(
    references: bool,
    core: &Arc<Core>,
    calling: &Calling,
    encode: impl FnOnce() -> PyResult<Encoded<'py>>,
) -> PyResult<Encoded<'py>> {
    if references { encode_crossing(core, calling, encode) } else { encode() }
}

fn encode_crossing<'py>(
    core: &Arc<Core>,
    calling: &Calling,
    encode: impl FnOnce() -> PyResult<Encoded<'py>>,
) -> PyResult<Encoded<'py>> {
    let entered = enter(core, calling);
    let encoded = encode();
    let given = entered.leave().map_or_else(Vec::new, |crossing| crossing.given);
    // Made before an error returns: dropping it takes back what was given.
    let unsent = Unsent::of(core, given);
    let mut encoded = encoded?;
    encoded.unsent = unsent;
    Ok(encoded)
}

/// Decodes a value that came over a connection. If it may hold `references`, those that the decoder did not reach, or
/// passed over, are released.
#[inline]
pub(crate) fn decoding<R>(
    references: bool,
    core: &Arc<Core>,
    calling: &Calling,
    event: &mut Incoming,
    decode: impl FnOnce(&mut Incoming) -> PyResult<R>,
) -> PyResult<R> {
    if references { decode_crossing(core, calling, event, decode) } else { decode(event) }
}

fn decode_crossing<R>(
    core: &Arc<Core>,
    calling: &Calling,
    event: &mut Incoming,
    decode: impl FnOnce(&mut Incoming) -> PyResult<R>,
) -> PyResult<R> {
    let given = given_in(&event.head, &event.payload);
    let entered = enter(core, calling);
    let decoded = decode(event);
    let taken = entered.leave().map_or_else(Vec::new, |crossing| crossing.taken);
    let left = left_over(&given, &taken);
    if !left.is_empty() {
        // Without the interpreter: there may be many.
        detached(&mut |_| core.release_given(&left));
    }
    decoded
}

/// The connection for which this thread now encodes or decodes a value, if the value may hold references.
pub(crate) fn current() -> Option<(Hold, Arc<Attached>)> {
    CROSSING.with_borrow(|crossing| {
        crossing.as_ref().map(|crossing| (crossing.hold.clone(), Arc::clone(&crossing.attached)))
    })
}

/// Notes that an object is given with the value that this thread encodes, if that value is for the connection of
/// `attached`.
pub(crate) fn note_given(attached: &Arc<Attached>, id: NonZeroU64) {
    note(attached, |crossing| crossing.given.push(id));
}

/// Notes that a reference was taken out of the value that this thread decodes, if that value came over the connection
/// of `attached`.
pub(crate) fn note_taken(attached: &Arc<Attached>, id: NonZeroU64) {
    note(attached, |crossing| crossing.taken.push(id));
}

fn note(attached: &Arc<Attached>, add: impl FnOnce(&mut Crossing)) {
    CROSSING.with_borrow_mut(|crossing| {
        if let Some(crossing) = crossing.as_mut().filter(|crossing| Arc::ptr_eq(&crossing.attached, attached)) {
            add(crossing);
        }
    });
}

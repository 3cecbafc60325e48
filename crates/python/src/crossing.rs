//! What crosses a connection by reference while a value is encoded or decoded: what is given, and what is taken.

use std::any::Any;
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::sync::Arc;

use nearcall_core::client::Connection as Core;
use nearcall_core::lock::Mutex;
use nearcall_core::{Incoming, given_in, left_over};
use pyo3::prelude::*;

use crate::calling::{Calling, Limits, Way};
use crate::encoded::Encoded;
use crate::interpreter::detached;
use crate::target::Hold;
use crate::unsent::Unsent;

/// What the binding keeps with a connection, or with the half of one that calls.
pub(crate) struct Attached {
    /// Who is at the other end.
    pub(crate) name: Arc<str>,
    /// How calls of the other side's objects are made: by this, for no object yet.
    pub(crate) calling: Calling,
    /// Python's own.
    pub(crate) held: Mutex<Option<Py<PyAny>>>,
}

/// What crosses on which connection, while a value is encoded or decoded.
struct Crossing {
    hold: Hold,
    attached: Arc<Attached>,
    /// What was given meanwhile.
    given: Vec<NonZeroU64>,
    /// What was taken out meanwhile of what the other side gave.
    taken: Vec<NonZeroU64>,
}

thread_local! {
    /// Of the value that this thread encodes or decodes.
    static CROSSING: RefCell<Option<Crossing>> = const { RefCell::new(None) };
}

/// Restores what was there before.
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
        // After a panic.
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
        // The channel keeps its connection, which keeps this: neither would ever end.
        // Nor has the time limit of the method that was called first anything to do with the objects that come after it.
        let limits = Limits { own: None, ..calling.limits };
        let mut calling = Calling { way: Way::Nowhere, limits, ..calling.clone() };
        if calling.waiting.is_threads()
            && let Some(of_callbacks) = calling.of_callbacks.lock().clone()
        {
            // Coroutines that call the other side's objects are those of the server that receives here.
            calling.waiting = of_callbacks;
        }
        Box::new(Arc::new(Attached { name: core.name().into(), calling, held: Mutex::default() }))
    };
    let attached = core.attached(make).downcast_ref::<Arc<Attached>>();
    Arc::clone(attached.expect("nothing else is attached to connections"))
}

/// Encodes what may hold references for a connection. What is given is taken back unless the message is sent.
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
    // Before the error goes on: what was given is taken back then.
    let unsent = Unsent::of(core, given);
    let mut encoded = encoded?;
    encoded.unsent = unsent;
    Ok(encoded)
}

/// Decodes what may hold references that came over a connection. Those that the decoder did not come to, or passed over, are
/// let go of.
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
        // There may be many.
        detached(&mut || core.release_given(&left));
    }
    decoded
}

/// The connection whose value the calling thread encodes or decodes just now, if that may hold references.
pub(crate) fn current() -> Option<(Hold, Arc<Attached>)> {
    CROSSING.with_borrow(|crossing| {
        crossing.as_ref().map(|crossing| (crossing.hold.clone(), Arc::clone(&crossing.attached)))
    })
}

/// Notes that an object is given with the value that this thread encodes for that connection, if it does.
pub(crate) fn note_given(attached: &Arc<Attached>, id: NonZeroU64) {
    note(attached, |crossing| crossing.given.push(id));
}

/// Notes that a reference was taken out of the value that this thread decodes for that connection, if it does.
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

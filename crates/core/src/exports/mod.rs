//! What the other side of a connection may call: how a method is handled, and the objects that this side has given.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock, Weak};

use nearcall_platform::lock::Mutex;
use nearcall_platform::sys::random;
use nearcall_wire::{Failure, Giver, Malformed, Released, references_in};

use crate::sync::{AtomicUsize, Ordering};
use nearcall_transport::Incoming;

/// An object as its owner gave it; only the owner knows what it is.
pub type Object = Box<dyn Any + Send + Sync>;

/// Where objects go that the other side holds no longer, and whose last call is over.
pub(crate) trait OnRelease: fmt::Debug + Send + Sync {
    /// Never waits.
    fn released(&self, object: Object);
}

/// Tells one object from another, for its owner: the addresses of the object and of what serves it.
pub type Identity = (usize, usize);

/// What runs the handler of a method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HandlerKind {
    /// A thread of Python. At most [`max_concurrency`](crate::server::WorkLimits::max_concurrency) of these run at once.
    #[default]
    Thread,
    /// The event loop.
    EventLoop,
    /// The [`NativeHandler`](crate::server::NativeHandler) with this index, in the thread that has received the call,
    /// however many other handlers run.
    Native(u8),
}

/// What the server must know of a method to route its frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MethodRouting {
    /// What runs its handler.
    pub handler: HandlerKind,
    /// It has a stream.
    pub streams: bool,
    /// Its arguments may hold references.
    pub references: bool,
    /// The items of the caller's stream may hold references.
    pub item_references: bool,
}

// Each request carries one.
const _: () = assert!(size_of::<Option<MethodRouting>>() <= 6);

impl MethodRouting {
    /// Whether frames may come for a call after it has begun.
    #[inline]
    pub(crate) fn is_tracked(self) -> bool {
        self.streams || self.handler == HandlerKind::EventLoop
    }
}

/// The methods of an object that the other side may call, by their numbers in the server's description, which are sorted.
#[derive(Debug, Default)]
pub struct Methods(Vec<(u16, MethodRouting)>);

impl Methods {
    /// Methods by their numbers.
    #[must_use]
    pub fn new(mut methods: Vec<(u16, MethodRouting)>) -> Self {
        methods.sort_unstable_by_key(|(number, _)| *number);
        Self(methods)
    }

    pub(crate) fn get(&self, number: u16) -> Option<MethodRouting> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.0[at].1)
    }
}

/// An object that the other side holds. Its owner is told when the other side no longer holds it and its last call is
/// over.
#[derive(Debug)]
pub struct Export {
    id: NonZeroU64,
    identity: Identity,
    pub(crate) methods: Arc<Methods>,
    /// Taken out when this is dropped.
    object: Option<Object>,
    given_by: Weak<Exports>,
    releases: Arc<dyn OnRelease>,
}

impl Export {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> NonZeroU64 {
        self.id
    }

    /// The object.
    #[must_use]
    pub fn object(&self) -> &(dyn Any + Send + Sync) {
        // Set until it is dropped.
        self.object.as_deref().expect("it is there until the end")
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Some(exports) = self.given_by.upgrade() {
            exports.given.lock().leaving.remove(&self.id);
        }
        if let Some(object) = self.object.take() {
            self.releases.released(object);
        }
    }
}

/// All objects that one side of a connection has given.
#[derive(Debug)]
pub(crate) struct Exports {
    given: Mutex<Given>,
    /// How many there are, so that a connection on which nothing was given looks no further.
    count: AtomicUsize,
    /// Set once the other side can call: how many objects it may hold, and where released objects go.
    terms: OnceLock<(usize, Arc<dyn OnRelease>)>,
}

#[derive(Debug, Default)]
struct Given {
    by_id: HashMap<NonZeroU64, Counted>,
    by_identity: HashMap<Identity, NonZeroU64>,
    /// Objects that the other side has released right after a message that sends them back. The message keeps each alive
    /// until it was read.
    leaving: HashMap<NonZeroU64, Weak<Export>>,
    /// The connection is gone.
    over: bool,
}

#[derive(Debug)]
struct Counted {
    export: Arc<Export>,
    /// How often the other side holds it.
    times: u64,
}

impl Given {
    /// The other side holds the object `times` fewer times. If none is left, returns the export, to be dropped outside
    /// the lock.
    fn take_back(&mut self, id: NonZeroU64, times: u64) -> Result<Option<Arc<Export>>, Malformed> {
        let counted = self.by_id.get_mut(&id).ok_or(Malformed("the peer released what it does not hold"))?;
        counted.times = counted.times.checked_sub(times).ok_or(Malformed("the peer released more than it holds"))?;
        if counted.times > 0 {
            return Ok(None);
        }
        let export = self.by_id.remove(&id).map(|counted| counted.export);
        if let Some(export) = &export {
            self.by_identity.remove(&export.identity);
            // A message, or a call of the object, still holds it.
            if Arc::strong_count(export) > 1 {
                self.leaving.insert(id, Arc::downgrade(export));
            }
        }
        Ok(export)
    }
}

impl Exports {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { given: Mutex::default(), count: AtomicUsize::new(0), terms: OnceLock::new() })
    }

    /// From now on the other side can call. It may hold `most` objects; those that it releases go to `releases`.
    pub(crate) fn open(&self, most: usize, releases: Arc<dyn OnRelease>) {
        // Set once, by whoever receives.
        let _ = self.terms.set((most, releases));
    }

    /// Counts one more reference to an object that is about to be sent. Returns the object's number.
    pub(crate) fn give(
        self: &Arc<Self>,
        identity: Identity,
        methods: &Arc<Methods>,
        make: impl FnOnce() -> Object,
    ) -> Result<NonZeroU64, Failure> {
        let Some((most, releases)) = self.terms.get() else {
            let what =
                "this client cannot be called: an object was passed to a server whose description says nothing of it";
            return Err(Failure::new(Failure::FAILED_PRECONDITION, what));
        };
        let mut given = self.given.lock();
        if given.over {
            return Err(Failure::new(Failure::UNAVAILABLE, "the connection is gone: no object can be passed over it"));
        }
        if let Some(&id) = given.by_identity.get(&identity)
            && let Some(counted) = given.by_id.get_mut(&id)
        {
            counted.times += 1;
            return Ok(id);
        }
        if given.by_id.len() >= *most {
            return Err(Failure::new(
                Failure::RESOURCE_EXHAUSTED,
                format!(
                    "the peer holds {most} objects of this connection, which is the limit; let it release some, or raise it \
                     with max_references"
                ),
            ));
        }
        // A number that nobody can guess.
        let id = loop {
            let bytes = random().map_err(|error| Failure::new(Failure::INTERNAL, error.to_string()))?;
            let id = NonZeroU64::new(u64::from_le_bytes(bytes));
            if let Some(id) = id.filter(|id| !given.by_id.contains_key(id)) {
                break id;
            }
        };
        let export = Arc::new(Export {
            id,
            identity,
            methods: Arc::clone(methods),
            object: Some(make()),
            given_by: Arc::downgrade(self),
            releases: Arc::clone(releases),
        });
        given.by_id.insert(id, Counted { export, times: 1 });
        given.by_identity.insert(identity, id);
        self.note(&given);
        Ok(id)
    }

    fn note(&self, given: &Given) {
        // Relaxed: an object is sent after it was counted, and the other side's frames about it come later.
        self.count.store(given.by_id.len(), Ordering::Relaxed);
    }

    /// Whether nothing is given.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: see `note`.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The object of that number, if the other side holds it.
    pub(crate) fn get(&self, id: NonZeroU64) -> Option<Arc<Export>> {
        self.given.lock().by_id.get(&id).map(|counted| Arc::clone(&counted.export))
    }

    /// This side's own object with that number, which came back in a message.
    pub(crate) fn home(&self, id: NonZeroU64) -> Option<Arc<Export>> {
        let given = self.given.lock();
        let counted = given.by_id.get(&id).map(|counted| Arc::clone(&counted.export));
        counted.or_else(|| given.leaving.get(&id)?.upgrade())
    }

    /// The message with these references was not sent: counts one fewer of each.
    pub(crate) fn take_back(&self, ids: &[NonZeroU64]) {
        let mut given = self.given.lock();
        let gone: Vec<_> = ids.iter().filter_map(|&id| given.take_back(id, 1).ok().flatten()).collect();
        self.note(&given);
        drop(given);
        // Outside the lock: the owner is told.
        drop(gone);
    }

    /// Takes in a release frame of the other side.
    pub(crate) fn release(&self, event: &Incoming) -> Result<(), Malformed> {
        let head = &event.head;
        if head.call != 0 || head.flags != 0 || head.extras().is_some() {
            return Err(Malformed("a release frame has a call number or a flag"));
        }
        let released = Released::decode(event.payload.inline().ok_or(Malformed("a release frame is too long"))?)?;
        let mut given = self.given.lock();
        if given.over {
            return Ok(());
        }
        let mut gone = Vec::new();
        let result = released.0.into_iter().try_for_each(|(id, times)| {
            gone.extend(given.take_back(id, times.into())?);
            Ok(())
        });
        self.note(&given);
        drop(given);
        drop(gone);
        result
    }

    /// The connection is gone: everything is released, and nothing can be given any more.
    pub(crate) fn end(&self) {
        let mut given = self.given.lock();
        let gone = std::mem::replace(&mut *given, Given { over: true, ..Given::default() });
        self.note(&given);
        drop(given);
        drop(gone);
    }

    /// Keeps this side's own objects alive that come back in a message, until they were taken out of it: the sender may
    /// release them right after the message.
    pub(crate) fn keep_home(&self, event: &mut Incoming) {
        if self.is_empty() {
            return;
        }
        let mut home = Vec::new();
        references_in(&event.values(), |giver, id| {
            if giver == Giver::Receiver {
                home.extend(self.get(id));
            }
        });
        if !home.is_empty() {
            event.keep(Box::new(home));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Released(AtomicUsize);

    impl OnRelease for Released {
        fn released(&self, _: Object) {
            // Relaxed: one thread.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A message that brings it home was sent before the release, and may be read after it.
    #[test]
    fn what_is_released_is_found_for_as_long_as_a_message_holds_it() {
        let (exports, released) = (Exports::new(), Arc::new(Released::default()));
        exports.open(10, Arc::clone(&released) as _);
        let methods = Arc::new(Methods::default());
        let ids: Vec<_> =
            (0..5).map(|number| exports.give((number, 0), &methods, || Box::new(())).expect("there is room")).collect();
        let message: Vec<_> = ids.iter().filter_map(|&id| exports.home(id)).collect();
        exports.take_back(&ids);
        assert!(exports.is_empty() && exports.get(ids[0]).is_none());
        assert!(ids.iter().all(|&id| exports.home(id).is_some()));
        drop(message);
        assert!(ids.iter().all(|&id| exports.home(id).is_none()) && exports.given.lock().leaving.is_empty());
        assert_eq!(released.0.load(Ordering::Relaxed), 5);
    }
}

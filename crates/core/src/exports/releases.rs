//! Objects that clients of a server have released, until a worker tells their owner.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_platform::lock::Mutex;

use crate::sync::{AtomicUsize, Ordering};

/// An object as its owner gave it; only the owner knows what it is.
pub type Object = Box<dyn Any + Send + Sync>;

/// Released objects that nobody has dealt with.
#[derive(Debug)]
pub(crate) struct Releases {
    waiting: Mutex<Vec<Object>>,
    /// How many objects wait or are being dealt with.
    pending: AtomicUsize,
    /// Wakes the receiving thread.
    wake: Arc<OwnedFd>,
}

/// An object that nobody holds any more, until its owner has dealt with it.
#[derive(Debug)]
pub struct Release {
    object: Option<Object>,
    releases: Arc<Releases>,
}

impl Releases {
    pub(crate) fn new(wake: Arc<OwnedFd>) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), pending: AtomicUsize::new(0), wake })
    }

    pub(crate) fn push(&self, object: Object) {
        // Release: a thread that stops the server and finds none pending finds the earlier releases finished.
        self.pending.fetch_add(1, Ordering::Release);
        self.waiting.lock().push(object);
        descriptors::signal(&self.wake);
    }

    /// The objects that nobody deals with yet.
    pub(crate) fn take(self: &Arc<Self>) -> Vec<Release> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let release = |object| Release { object: Some(object), releases: Arc::clone(self) };
        waiting.into_iter().map(release).collect()
    }

    /// The last of the objects that nobody deals with yet.
    pub(crate) fn take_one(self: &Arc<Self>) -> Option<Release> {
        let object = self.waiting.lock().pop()?;
        Some(Release { object: Some(object), releases: Arc::clone(self) })
    }

    /// How many objects wait or are being dealt with.
    pub(crate) fn pending(&self) -> usize {
        // Acquire: as in `push`.
        self.pending.load(Ordering::Acquire)
    }
}

impl Release {
    /// The object; to be asked once, by whoever deals with it.
    pub fn take(&mut self) -> Option<Object> {
        self.object.take()
    }

    /// The server ends: puts the object back for its last owner to deal with.
    pub(crate) fn keep(mut self) {
        if let Some(object) = self.object.take() {
            // Release: as in `push`.
            self.releases.pending.fetch_add(1, Ordering::Release);
            self.releases.waiting.lock().push(object);
        }
    }
}

/// The object was dealt with.
impl Drop for Release {
    fn drop(&mut self) {
        // Release: as in `push`.
        self.releases.pending.fetch_sub(1, Ordering::Release);
    }
}

//! What tells of news: a descriptor, or a call.

use std::os::fd::BorrowedFd;
use std::task::Waker;

use nearcall_platform::lock::Mutex;

/// By what a link, an opening or a door tells a thread that sleeps of news.
#[derive(Debug, Clone, Copy)]
pub enum Signal<'a> {
    /// This descriptor becomes readable. No other link has it.
    Descriptor(BorrowedFd<'a>),
    /// The waker that was left here is woken: whenever something has come, and when there is room again for what waits. Look
    /// once after a waker was left: what came before wakes nobody.
    Waker(&'a WakerSlot),
}

impl<'a> Signal<'a> {
    /// The descriptor, if there is one.
    #[must_use]
    pub fn fd(self) -> Option<BorrowedFd<'a>> {
        match self {
            Self::Descriptor(fd) => Some(fd),
            Self::Waker(_) => None,
        }
    }
}

/// Where who sleeps leaves a waker, for a link without a descriptor of its own.
#[derive(Debug, Default)]
pub struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    /// Leaves a waker, in place of the one that was here.
    pub fn set(&self, waker: Option<Waker>) {
        // Dropped without the lock: it may be the last owner of something.
        let old = std::mem::replace(&mut *self.0.lock(), waker);
        drop(old);
    }

    /// Wakes who sleeps, if anybody has left a waker.
    pub fn wake(&self) {
        let waker = self.0.lock().clone();
        waker.inspect(Waker::wake_by_ref);
    }
}

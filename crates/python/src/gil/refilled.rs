//! What lies in an object of Python that is used again.

use std::cell::UnsafeCell;
use std::ops::Deref;

/// Contents that are changed only while nobody else has the object in which they lie. All others read them.
#[derive(Debug, Default)]
pub(crate) struct Refilled<T>(UnsafeCell<T>);

// SAFETY: threads share it to read, as they would share `T`; `change` has the caller make sure that it is shared by none.
unsafe impl<T: Send + Sync> Sync for Refilled<T> {}

impl<T> Refilled<T> {
    pub(crate) fn new(contents: T) -> Self {
        Self(UnsafeCell::new(contents))
    }

    /// The contents, to be changed.
    ///
    /// # Safety
    /// Nobody else reads them as long as what is returned is used: the caller has the only reference to the object.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "that nobody else reads them is the caller's promise")]
    pub(crate) unsafe fn change(&self) -> &mut T {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.0.get() }
    }
}

impl<T> Deref for Refilled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: they are not changed as long as anybody has a reference, which `change` has its caller promise.
        unsafe { &*self.0.get() }
    }
}

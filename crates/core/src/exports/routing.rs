//! How calls of a method find what runs it, on a server and on an object that was given away.

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

//! What a thread waits for on a connection where a server receives. The thread receives for the server itself, or
//! sleeps while another thread does.

use nearcall_transport::Incoming;

/// What a thread waits for while it receives for a server.
pub(crate) trait Awaited {
    /// Whether the thread need not wait any longer.
    fn is_over(&mut self) -> bool;

    /// Takes in a frame of a call that this side has made, from the connection over which the awaited frame is to come.
    /// Whether the thread need not wait any longer.
    fn take_in(&mut self, arrived: &mut Option<Incoming>) -> bool;

    /// Sleeps until something may have come for the thread, while another thread receives. Whether the thread need not wait
    /// any longer.
    fn sleep(&mut self) -> bool;
}

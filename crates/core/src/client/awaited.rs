//! What a thread waits for while a server receives: the thread does so itself, or sleeps while another one does.

use nearcall_transport::Incoming;

/// What a thread waits for that receives for a server meanwhile.
pub(crate) trait Awaited {
    /// Whether the thread need not wait any longer.
    fn is_over(&mut self) -> bool;

    /// Takes in a frame of a call that this side has made, over the connection where what is waited for is to come. Whether
    /// the thread need not wait any longer.
    fn take_in(&mut self, arrived: &mut Option<Incoming>) -> bool;
}

/// The same of a thread that can sleep.
pub(crate) trait Sleeper: Awaited {
    /// Sleeps until something has come for it, while another thread receives. Whether it need not wait any longer.
    fn sleep(&mut self) -> bool;
}

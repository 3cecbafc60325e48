//! Reading a long table takes milliseconds of a processor. Who waits for that processor meanwhile, such as a thread that
//! sends by the table before, is let through now and then: it does not wait until the scheduler takes the processor away.

/// How many records, or entries, are one stretch of work: some 50 µs.
const STRETCH: u32 = 512;

/// Counts what is done.
#[derive(Default)]
pub(super) struct Pauses(u32);

impl Pauses {
    /// One more record or entry is done.
    #[inline]
    pub(super) fn one_done(&mut self) {
        self.0 += 1;
        if self.0 == STRETCH {
            self.0 = 0;
            std::thread::yield_now();
        }
    }
}

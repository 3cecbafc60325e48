//! Limits how many useless frames a peer may send.

use std::time::{Duration, Instant};

use crate::code::{Broken, Code};

/// A bucket of tokens. Useless frames take one out; time and useful traffic put some in. The clock is read only when
/// the bucket is empty.
#[derive(Debug)]
pub(crate) struct Patience {
    left: u32,
    most: u32,
    per_second: u32,
    filled: Instant,
}

impl Patience {
    pub(crate) fn new(most: u32, per_second: u32) -> Self {
        Self { left: most, most, per_second, filled: Instant::now() }
    }

    /// Something useful was received or sent.
    #[inline]
    pub(crate) fn earn(&mut self, worth: u32) {
        self.left = (self.left + worth).min(self.most);
    }

    /// Something useless was received.
    pub(crate) fn spend(&mut self, why: &'static str) -> Result<(), Broken> {
        if self.left == 0 {
            self.refill(self.filled.elapsed());
        }
        self.left = self.left.checked_sub(1).ok_or(Broken::new(Code::ENHANCE_YOUR_CALM, why))?;
        Ok(())
    }

    fn refill(&mut self, passed: Duration) {
        let earned = passed.as_millis() * u128::from(self.per_second) / 1000;
        if earned > 0 {
            self.left = earned.min(u128::from(self.most)) as u32;
            self.filled = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_and_time_give_patience_back_and_a_flood_takes_it() {
        let mut patience = Patience::new(3, 0);
        for _ in 0..100 {
            patience.spend("").unwrap();
            patience.earn(1);
        }
        (0..3).for_each(|_| patience.spend("").unwrap());
        assert_eq!(patience.spend("enough").unwrap_err().code, Code::ENHANCE_YOUR_CALM);
        let mut patience = Patience::new(100, 10);
        patience.left = 0;
        patience.refill(Duration::from_millis(99));
        assert_eq!(patience.left, 0);
        patience.refill(Duration::from_secs(2));
        assert_eq!(patience.left, 20);
        patience.refill(Duration::from_secs(3600));
        assert_eq!(patience.left, 100);
    }
}

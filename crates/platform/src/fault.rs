//! Panics are faults of our own. Where one belongs to a single client or call, it is contained there: that client or call
//! ends, and the others go on.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nearcall itself has failed, please report it: {}", self.0)
    }
}

impl Fault {
    #[cold]
    fn of(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("a panic without a text").to_owned();
        // What came with the panic may panic again when it is dropped.
        std::mem::forget(panic);
        Self(text)
    }
}

/// Runs a closure, and stops a panic in it. What the closure was about to change may be half done: the caller must end
/// whatever that belongs to.
///
/// # Errors
/// The closure has panicked.
#[inline]
pub fn contained<R>(run: impl FnOnce() -> R) -> Result<R, Fault> {
    catch_unwind(AssertUnwindSafe(run)).map_err(Fault::of)
}

#[cfg(test)]
mod tests {
    use super::contained;

    #[test]
    fn a_panic_becomes_its_text() {
        assert_eq!(contained(|| 1), Ok(1));
        let said = |run: fn()| contained(run).map_err(|fault| fault.0);
        assert_eq!(said(|| panic!("as is")), Err("as is".to_owned()));
        assert_eq!(said(|| panic!("{}", 7)), Err("7".to_owned()));
        assert!(said(|| std::panic::panic_any(7)).is_err());
    }
}

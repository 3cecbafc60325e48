//! In place of `crates/platform`: the models have nothing that is large.

/// Drops a value.
pub fn free<T>(value: T, _bytes: usize) {
    drop(value);
}

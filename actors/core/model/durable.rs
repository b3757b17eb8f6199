//! The type of values that are on disk.

use std::ops::Deref;

/// A value that is on disk.
///
/// Only Persistence creates one, by `mark_durable`, on acknowledgement and on replay. Actions are built only from
/// `Durable` values, so the type enforces the write-ahead rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// Asserts that `value` is on disk. Only Persistence calls it, as `tests/architecture.rs` checks.
    pub fn mark_durable(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Durable<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

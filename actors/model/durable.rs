use std::ops::Deref;

/// A value that is on disk.
///
/// Only Persistence makes one (the constructor is private to this crate), on acknowledgement and on replay. What an
/// effect is made of is a `Durable`, so that nothing can be done before it is written: the write-ahead rule is a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// Vouches that `value` is on disk. Called by Persistence alone (kept so by `tests/architecture.rs`).
    pub(crate) fn mark_durable(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Durable<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

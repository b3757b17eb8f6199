//! Port of time and randomness.

use std::fmt::Debug;

use crate::model::Timestamp;

/// The sources of nondeterminism: time and randomness. One object, so that a test controls both.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The wall-clock time.
    fn at(&self) -> Timestamp;

    /// Milliseconds since a fixed point of this process's life; never decreases.
    fn monotonic_ms(&self) -> u64;

    /// 80 random bits for ids.
    fn random(&self) -> u128;
}

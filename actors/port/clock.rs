use std::fmt::Debug;

use crate::model::Timestamp;

/// What nobody can compute: the time, and chance. One object, so that a test owns both.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The wall clock.
    fn at(&self) -> Timestamp;

    /// Milliseconds since some fixed point of this process's life; never goes back.
    fn monotonic_ms(&self) -> u64;

    /// 80 bits of chance, for ids.
    fn random(&self) -> u128;
}

//! Garbage collection of an open store, in steps so short that no append waits long for one.
//!
//! - Only the committer's thread removes rows and blobs, one [`GcStep`] at a time, between two batches. One pass at a
//!   time: see [`GarbageCollector::start`].
//! - A session is removed in one transaction, with every row that names it, unless it is open or has changed since the
//!   snapshot. The remaining rows of a long journal follow in slices: until then a tombstone names the last of them, so
//!   after a kill the next pass continues.
//! - Files are removed after the rows that named them. The spiller tracks the blobs that it stores or finds stored; a
//!   snapshot taken after the start of tracking is searched for references. A blob in neither set has no reference, now
//!   or later.

mod collector;
mod footprint;
mod mark;
mod snapshot;
mod steps;
#[cfg(test)]
mod tests;

pub use collector::{GarbageCollector, GcError, GcPass, RemovedSet, SessionRemovalResult};
pub use footprint::StoreFootprint;
pub use snapshot::GcSnapshot;
pub(super) use steps::GcStep;
pub use tally::{GcMode, Tally, why};

mod tally;

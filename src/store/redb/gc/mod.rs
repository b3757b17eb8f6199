//! Care of an open store: what nobody needs any more is removed, in steps so short that no append waits long for one.
//!
//! - Only the committer's thread removes, one [`GcStep`] at a time, between two batches. One care at a time: see
//!   [`GarbageCollector::begin`].
//! - A session goes in one transaction, with every row that names it, if nobody has it open and it is as it was when it was
//!   looked at. The rows of a long journal follow in slices: until they are gone, `graves` names the last one that is
//!   left, so a kill in between leaves them to the next care.
//! - Files go after the rows that named them. The spiller notes the blobs that it stores or finds stored; a snapshot that is
//!   taken after that began is searched for references; what is in neither is not needed by anything, now or later.

mod collector;
mod footprint;
mod mark;
mod plan;
mod steps;
#[cfg(test)]
mod tests;

pub use collector::{GarbageCollector, GcError, GcPass, RemovedSet};
pub use footprint::StoreFootprint;
pub use mark::Lookup;
pub(super) use steps::GcStep;
pub use tally::{GcMode, Tally, why};

mod tally;

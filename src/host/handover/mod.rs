//! Handover: a process that cannot have the store gives its run to the owner, and follows it there. `holder.rs` is the
//! client's side, `taken_submissions.rs` the owner's, and `submission_file.rs` carries tasks that are too long for a line
//! of the control socket.

mod holder;
mod submission_file;
mod taken_submissions;

pub use holder::{FollowedRun, FollowedStep, Holder, HolderError};
pub(super) use submission_file::remove_old_submissions;

//! Handover: a process that cannot have the store gives its run to the owner, and follows it there. `owner_connection.rs` is the
//! client's side, `taken_submissions.rs` the owner's, and `submission_file.rs` carries tasks that are too long for a line
//! of the control socket.

mod owner_connection;
mod record_follower;
mod submission_file;
mod taken_submissions;

pub use owner_connection::{
    DecodedRecord, FollowedEvents, FollowedStep, HandoverError, OwnerConnection, as_text,
};
pub use record_follower::{FollowedPlace, FollowedRecord, RecordFollower};
pub(super) use submission_file::remove_old_submissions;
pub(crate) use taken_submissions::request_error;

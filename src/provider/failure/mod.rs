//! What a response means that is no answer; the same for every wire format.

mod classify;
mod signs;

pub use classify::failure_of;
pub(super) use classify::{failure_in_body, failure_in_stream};

//! What a response that is no answer means: one classification for all wire formats. `classify.rs` is the entry, and
//! decides what takes precedence. The others read headers, codes, sizes and texts.

mod body_end;
mod classify;
mod error_hints;
pub(super) mod headers;
mod phrases;
pub(super) mod retry_after;
mod sizes;
mod text;
mod vendor_error;

pub use body_end::{BodyEnd, with_body_end};
pub use classify::{failure_in_body, failure_in_stream, failure_of};

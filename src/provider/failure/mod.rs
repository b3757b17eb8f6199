//! What a response that is no answer means: one classification for all wire formats. `classify.rs` is the entry, and
//! decides what takes precedence. The others read headers, codes, sizes and texts.

mod body_end;
mod classify;
mod counts;
mod error_hints;
pub(super) mod headers;
pub(super) mod retry_after;
mod rules;
mod sizes;
mod statuses;
mod text;
mod vendor_error;
mod vocabulary;
mod words;

pub use body_end::{BodyEnd, with_body_end};
pub use classify::{failure_in_body, failure_in_stream, failure_of};

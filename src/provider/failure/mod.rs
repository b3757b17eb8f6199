//! What a response means that is no answer; the same for every wire format. What vendors say in fields goes before what
//! they say in words, and what they say of themselves before what they quote.

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

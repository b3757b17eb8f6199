//! What a response means that is no answer; the same for every wire format. What vendors say in fields goes before what
//! they say in words, and what they say of themselves before what they quote.

mod classify;
mod cut;
pub(super) mod headers;
mod phrases;
mod signs;
mod sizes;
mod text;
pub(super) mod times;
mod vendor_error;

pub use classify::{failure_in_body, failure_in_stream, failure_of};
pub use cut::{BodyEnd, with_body_end};

//! Classification of failed responses, the same for every wire format. Fields take precedence over texts, and a
//! vendor's own statements over quoted ones.

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

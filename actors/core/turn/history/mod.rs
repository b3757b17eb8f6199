//! The conversation as rounds, in which a call and its result are one unit.
//!
//! Architecture invariant: no call without its result, no result without its call, and no two messages of one role in a
//! row. The types cannot express these, whatever was removed. The message list for the model is rendered, never stored.

mod rounds;
mod transcript;
mod trim;

pub(crate) use rounds::CallResult;
pub(super) use rounds::History;
pub use rounds::RenderCursor;
pub(super) use trim::KeepTail;

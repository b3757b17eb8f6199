//! Architecture invariant: no call without its result, no result without its call, and no two messages of one role in a
//! row. The types exclude these, also after a removal. The message list for the model is rendered, never stored.

mod rounds;
mod transcript;
mod trim;

pub(crate) use rounds::CallResult;
pub(super) use rounds::History;
pub use rounds::RenderCursor;
pub(super) use trim::KeepTail;

//! The conversation as rounds, in which a call and its result are one thing.
//!
//! Architecture invariant: a tool call without its result, a result without its call, or two messages of one role in a
//! row cannot be expressed here, whatever was cut. The list that the model sees is rendered, never kept.

mod rounds;
mod transcript;
mod trim;

pub(crate) use rounds::{CallResult, History, RenderCursor};
pub(super) use trim::KeepTail;

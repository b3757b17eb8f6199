//! The conversation as rounds, in which a call and its result are one thing.
//!
//! Architecture invariant: a tool call without its result, a result without its call, or two messages of one role in a
//! row cannot be expressed here, whatever was cut. The list that the model sees is rendered, never kept.

mod rounds;
mod short;
mod transcript;

pub(crate) use rounds::{CallResult, Cursor, History};
pub(super) use short::Keep;

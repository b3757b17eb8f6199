//! The conversation as rounds, in which a call and its result are one unit. `rounds.rs` lets it grow and renders it,
//! `trim.rs` shortens it, and `transcript.rs` writes it as text for summary calls.
//!
//! Architecture invariant: no call without its result, no result without its call, and no two messages of one role in a
//! row. The types exclude these, also after a removal. The message list for the model is rendered, never stored.

mod rounds;
mod transcript;
mod trim;

pub(crate) use rounds::CallResult;
pub use rounds::RenderCursor;
pub(super) use rounds::{History, IMAGE_BYTES};
pub(super) use trim::KeepTail;

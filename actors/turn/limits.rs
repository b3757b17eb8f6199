//! What a call is taken to cost before it is made.

use crate::{
    model::{Amounts, Attempt},
    turn::{Turn, run::Run},
};

/// Bytes of text that make a token, roughly, in every model family.
const BYTES_PER_TOKEN: u64 = 4;

/// What an attempt of the model call reserves: its iteration once, its tokens with each attempt, because each may be
/// billed.
pub(super) fn reservation(run: &Run, turn: &Turn, attempt: Attempt) -> Amounts {
    let head = turn.head.prompt.len() + run.spec.system.as_deref().map_or(0, str::len);
    let bytes = u64::try_from(turn.history.bytes() + head).unwrap_or(u64::MAX);
    let input = bytes / BYTES_PER_TOKEN;
    Amounts {
        iterations: (attempt == 1).then_some(1),
        tokens: Some(input.saturating_add(input / 4).saturating_add(run.spec.limits.max_tokens)),
        ..Amounts::default()
    }
}

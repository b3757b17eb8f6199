//! The layer `user`: the agent's notes about its user.

use super::{PromptInputs, bounded_text::BoundedText, memory::build_from_file};

pub(super) fn build(ground: &PromptInputs<'_>) -> BoundedText {
    let most = ground.memory.user_chars.0 as usize;
    build_from_file(ground, "USER.md", most, "What you know of the person you work for.")
}

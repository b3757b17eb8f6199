//! The layers `memory` and `user`: the agent's notes about its work and about its user, from the memory files.

use super::{
    PromptInputs,
    bounded_text::{BoundedText, SizeLimit, head},
    fence::fence_text,
    project_files::{omission_note, read_own_file},
};
use crate::memory::{FOLDER, Target};

/// Bytes of the longest UTF-8 character.
const MAX_CHAR_BYTES: usize = 4;

pub(super) fn build(inputs: &PromptInputs<'_>) -> BoundedText {
    let heading = "What you have noted in earlier sessions; it may be out of date.";
    build_from_file(inputs, Target::Memory, inputs.memory.memory_chars.0 as usize, heading)
}

/// The layer `user`: the agent's notes about its user.
pub(super) fn build_user(inputs: &PromptInputs<'_>) -> BoundedText {
    let heading = "What you know of the person you work for.";
    build_from_file(inputs, Target::User, inputs.memory.user_chars.0 as usize, heading)
}

/// A file of notes below a heading.
fn build_from_file(inputs: &PromptInputs<'_>, target: Target, max: usize, heading: &str) -> BoundedText {
    let file = target.file();
    match read_own_file(&inputs.state.join(FOLDER).join(file), max.saturating_mul(MAX_CHAR_BYTES)) {
        Ok(None) => BoundedText::default(),
        Ok(Some(source)) => {
            let BoundedText { text, total_bytes } = head(&source, SizeLimit::Characters(max));
            if text.is_empty() {
                return BoundedText::default();
            }
            BoundedText { text: format!("{heading}\n{}", fence_text(file, &text)), total_bytes }
        }
        Err(error) => omission_note(file, &error).into(),
    }
}

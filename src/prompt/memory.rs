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

pub(super) fn build(ground: &PromptInputs<'_>) -> BoundedText {
    let heading = "What you have noted in earlier sessions; it may be out of date.";
    build_from_file(ground, Target::Memory, ground.memory.memory_chars.0 as usize, heading)
}

/// The layer `user`: the agent's notes about its user.
pub(super) fn build_user(ground: &PromptInputs<'_>) -> BoundedText {
    let heading = "What you know of the person you work for.";
    build_from_file(ground, Target::User, ground.memory.user_chars.0 as usize, heading)
}

/// A file of notes below a heading.
fn build_from_file(ground: &PromptInputs<'_>, target: Target, most: usize, heading: &str) -> BoundedText {
    let file = target.file();
    match read_own_file(&ground.state.join(FOLDER).join(file), most.saturating_mul(MAX_CHAR_BYTES)) {
        Ok(None) => BoundedText::default(),
        Ok(Some(source)) => {
            let BoundedText { text, total_bytes: of } = head(&source, SizeLimit::Characters(most));
            if text.is_empty() {
                return BoundedText::default();
            }
            BoundedText { text: format!("{heading}\n{}", fence_text(file, &text)), total_bytes: of }
        }
        Err(error) => omission_note(file, &error).into(),
    }
}

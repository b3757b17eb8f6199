//! The layer `memory`: the agent's notes about its work. The layer `user` is built in the same way.

use super::{
    PromptInputs,
    bounded_text::{BoundedText, SizeLimit, head},
    fence::fence_text,
    project_files::{omission_note, read_own_file},
};
use crate::memory::FOLDER;

/// Bytes of the longest UTF-8 character.
const MAX_CHAR_BYTES: usize = 4;

pub(super) fn build(ground: &PromptInputs<'_>) -> BoundedText {
    let most = ground.memory.memory_chars.0 as usize;
    build_from_file(
        ground,
        "MEMORY.md",
        most,
        "What you have noted in earlier sessions; it may be out of date.",
    )
}

/// A file of notes below a heading.
pub(super) fn build_from_file(
    ground: &PromptInputs<'_>,
    file: &str,
    most: usize,
    heading: &str,
) -> BoundedText {
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

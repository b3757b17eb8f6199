use super::{
    Ground,
    context::{left_out, own},
    cut::{Cut, Most, head},
    fence::fenced,
};
use crate::memory::FOLDER;

/// Bytes that a character has at most.
const BYTES: usize = 4;

/// What the agent has noted.
pub(super) fn build(ground: &Ground<'_>) -> Cut {
    let most = ground.memory.memory_chars.0 as usize;
    noted(ground, ("MEMORY.md", most), "What you have noted in earlier sessions; it may be out of date.")
}

/// A file of notes under a heading.
pub(super) fn noted(ground: &Ground<'_>, (file, most): (&str, usize), heading: &str) -> Cut {
    match own(&ground.state.join(FOLDER).join(file), most.saturating_mul(BYTES)) {
        Ok(None) => Cut::default(),
        Ok(Some(source)) => {
            let Cut { text, of } = head(&source, Most::Characters(most));
            if text.is_empty() {
                return Cut::default();
            }
            Cut { text: format!("{heading}\n{}", fenced(file, &text)), of }
        }
        Err(error) => left_out(file, &error).into(),
    }
}

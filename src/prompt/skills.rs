//! The layer `skills`: the skills at the beginning of the session, if it can read them.

use super::{
    PromptInputs,
    bounded_text::{BoundedText, SizeLimit, head},
};
use crate::tool::{
    SKILL_VIEW,
    skills::{Catalogue, FileExcerpt},
};

pub(super) fn build(inputs: &PromptInputs<'_>) -> BoundedText {
    let found = inputs.skills.read(&inputs.request.workspace);
    let can_read = inputs.request.tools.iter().any(|tool| tool == SKILL_VIEW);
    // A catalogue of errors alone is shown although no run has the tool then.
    if !can_read && !found.skills.is_empty() || found == Catalogue::default() {
        return BoundedText::default();
    }
    let skills = found.skills.iter().map(|skill| format!("- {}: {}", skill.name, skill.description));
    let left_out = found.left_out.iter().map(|reason| format!("[left out: {reason}]"));
    let lines: Vec<_> = std::iter::once("Skills:".to_owned()).chain(skills).chain(left_out).collect();
    head(&FileExcerpt::of(&lines.join("\n")), SizeLimit::Bytes(inputs.limits.skills_bytes.0 as usize))
}

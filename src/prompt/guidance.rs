//! The layer `guidance`: how to use the tools of the run.

use super::{
    PromptInputs,
    bounded_text::{BoundedText, SizeLimit, head},
};
use crate::tool::skills::FileExcerpt;

/// Guidance on tools, in the order of the prompt.
const GUIDANCE: &[(&str, &str)] = &[
    ("shell", include_str!("../../config/prompts/guidance/shell.md")),
    ("todo", include_str!("../../config/prompts/guidance/todo.md")),
    ("memory", include_str!("../../config/prompts/guidance/memory.md")),
    ("delegate_task", include_str!("../../config/prompts/guidance/delegate_task.md")),
    ("skill_view", include_str!("../../config/prompts/guidance/skill_view.md")),
];

pub(super) fn build(inputs: &PromptInputs<'_>) -> BoundedText {
    let is_offered = |(tool, _): &&(&str, &str)| inputs.request.tools.iter().any(|offered| offered == tool);
    let texts: Vec<_> = GUIDANCE.iter().filter(is_offered).map(|(_, text)| text.trim_end()).collect();
    let source = FileExcerpt::of(&texts.join("\n"));
    head(&source, SizeLimit::Bytes(inputs.limits.guidance_bytes.0 as usize))
}

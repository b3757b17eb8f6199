//! The layers of the system prompt, but for the project's files.

use std::env::consts::{ARCH, OS};

use hermod_actors::port::SystemPromptError;

use super::{
    PromptInputs,
    bounded_text::{BoundedText, SizeLimit, fence_text, head},
    project_files::{omission_note, read_own_file},
};
use crate::{
    memory::Target,
    tool::{
        SHELL, SKILL_VIEW, one_line,
        skills::{Catalogue, FileExcerpt},
    },
};

/// The user's identity file in the state directory, which replaces the embedded one.
const IDENTITY_FILE: &str = "SOUL.md";
const EMBEDDED_IDENTITY: &str = include_str!("../../config/prompts/identity.md");

/// The layer `identity`: what the agent is, from its configuration, the user's file or the program's. An unreadable file
/// is an error, since the session would have a wrong identity for good.
pub(super) fn identity(inputs: &PromptInputs<'_>) -> Result<BoundedText, SystemPromptError> {
    let limits = &inputs.sources.limits;
    let max_bytes = limits.identity_bytes.0 as usize;
    let bounded = |text: &FileExcerpt| head(text, SizeLimit::Bytes(max_bytes));
    if let Some(text) = &limits.identity.0 {
        return Ok(bounded(&FileExcerpt::of(text)));
    }
    let own = limits.identity_file.0.clone();
    let path = own.clone().unwrap_or_else(|| inputs.sources.state.join(IDENTITY_FILE));
    let unreadable = |error: &str| {
        let remedy = match own {
            Some(_) => "mend it, or change `prompt.identity_file`",
            None => "mend it, or remove it for the one of the program",
        };
        SystemPromptError::Failed(format!("{}: {error}; {remedy}", path.display()))
    };
    match read_own_file(&path, max_bytes).map_err(|error| unreadable(&error))? {
        Some(read) => Ok(bounded(&read)),
        None if own.is_some() => Err(unreadable("there is no such file")),
        None => Ok(bounded(&FileExcerpt::of(EMBEDDED_IDENTITY))),
    }
}

/// Guidance on tools, in the order of the prompt.
const GUIDANCE: &[(&str, &str)] = &[
    ("shell", include_str!("../../config/prompts/guidance/shell.md")),
    ("todo", include_str!("../../config/prompts/guidance/todo.md")),
    ("memory", include_str!("../../config/prompts/guidance/memory.md")),
    ("delegate_task", include_str!("../../config/prompts/guidance/delegate_task.md")),
    ("skill_view", include_str!("../../config/prompts/guidance/skill_view.md")),
];

/// The layer `guidance`: how to use the tools of the run.
pub(super) fn guidance(inputs: &PromptInputs<'_>) -> BoundedText {
    let is_offered = |(tool, _): &&(&str, &str)| inputs.request.tools.iter().any(|offered| offered == tool);
    let texts: Vec<_> = GUIDANCE.iter().filter(is_offered).map(|(_, text)| text.trim_end()).collect();
    let source = FileExcerpt::of(&texts.join("\n"));
    head(&source, SizeLimit::Bytes(inputs.sources.limits.guidance_bytes.0 as usize))
}

/// The layer `skills`: the skills at the beginning of the session, if it can read them.
pub(super) fn skills(inputs: &PromptInputs<'_>) -> BoundedText {
    let found = inputs.sources.skills.read(&inputs.request.workspace);
    let can_read = inputs.request.tools.iter().any(|tool| tool == SKILL_VIEW);
    // A catalogue of errors alone is shown although no run has the tool then.
    if !can_read && !found.skills.is_empty() || found == Catalogue::default() {
        return BoundedText::default();
    }
    let skills = found.skills.iter().map(|skill| format!("- {}: {}", skill.name, skill.description));
    let left_out = found.left_out.iter().map(|reason| format!("[left out: {reason}]"));
    let lines: Vec<_> = std::iter::once("Skills:".to_owned()).chain(skills).chain(left_out).collect();
    head(&FileExcerpt::of(&lines.join("\n")), SizeLimit::Bytes(inputs.sources.limits.skills_bytes.0 as usize))
}

/// The layer `environment`: workspace, operating system and shell of the tools.
pub(super) fn environment(inputs: &PromptInputs<'_>) -> BoundedText {
    let workspace = one_line(inputs.request.workspace.as_bytes());
    format!("Workspace: {workspace}\nOperating system: {OS} on {ARCH}\nShell: {SHELL}").into()
}

/// The layer `date`: the day on which the session began.
pub(super) fn date(inputs: &PromptInputs<'_>) -> BoundedText {
    format!("Date: {}", inputs.request.day).into()
}

/// The layer `model`: the first model of the session.
pub(super) fn model(inputs: &PromptInputs<'_>) -> BoundedText {
    let model = inputs.request.model.as_ref();
    let text = model.map(|model| format!("Model: {}", one_line(model.to_string().as_bytes())));
    text.unwrap_or_default().into()
}

/// Bytes of the longest UTF-8 character.
const MAX_CHAR_BYTES: usize = 4;

/// The layer `memory`: the agent's notes about its work.
pub(super) fn memory(inputs: &PromptInputs<'_>) -> BoundedText {
    let heading = "What you have noted in earlier sessions; it may be out of date.";
    build_from_file(inputs, Target::Memory, inputs.sources.memory.memory_chars.0 as usize, heading)
}

/// The layer `user`: the agent's notes about its user.
pub(super) fn user(inputs: &PromptInputs<'_>) -> BoundedText {
    let heading = "What you know of the person you work for.";
    build_from_file(inputs, Target::User, inputs.sources.memory.user_chars.0 as usize, heading)
}

/// A file of notes below a heading.
fn build_from_file(inputs: &PromptInputs<'_>, target: Target, max: usize, heading: &str) -> BoundedText {
    let file = target.file();
    match read_own_file(&inputs.sources.memory_folder.join(file), max.saturating_mul(MAX_CHAR_BYTES)) {
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

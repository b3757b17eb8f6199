//! The layer `identity`: what the agent is, from the user's file or the program's.

use hermod_actors::port::SystemPromptError;

use super::{
    PromptInputs,
    bounded_text::{BoundedText, SizeLimit, head},
    project_files::read_own_file,
};
use crate::tool::skills::FileExcerpt;

/// The user's identity file in the state directory, which replaces the embedded one.
const FILE: &str = "SOUL.md";
const EMBEDDED: &str = include_str!("../../config/prompts/identity.md");

/// An unreadable file is an error, since the session would have a wrong identity for good.
pub(super) fn build(inputs: &PromptInputs<'_>) -> Result<BoundedText, SystemPromptError> {
    let max_bytes = inputs.limits.identity_bytes.0 as usize;
    let unreadable = |error: String| {
        let path = inputs.state.join(FILE);
        SystemPromptError(format!(
            "{}: {error}; mend it, or remove it for the one of the program",
            path.display()
        ))
    };
    let read = read_own_file(&inputs.state.join(FILE), max_bytes).map_err(unreadable)?;
    Ok(head(&read.unwrap_or_else(|| FileExcerpt::of(EMBEDDED)), SizeLimit::Bytes(max_bytes)))
}

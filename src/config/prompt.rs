//! The sections of the system prompt and of skills; `src/prompt` builds the prompt.

use serde::Deserialize;

use super::values::{AbsolutePaths, PositiveCount};

/// The section `prompt`: size limits of its parts.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptSection {
    /// Bytes of the identity.
    pub identity_bytes: PositiveCount,
    /// Bytes of the guidance on tools.
    pub guidance_bytes: PositiveCount,
    /// Bytes of the list of skills.
    pub skills_bytes: PositiveCount,
    /// Bytes of one context file.
    pub context_file_bytes: PositiveCount,
    /// Bytes of all context files together.
    pub context_bytes: PositiveCount,
}

/// The section `skills`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillsSection {
    /// Folders with skills, besides those of the state directory and the workspace.
    pub paths: AbsolutePaths,
}

impl PromptSection {
    /// The limits with their keys.
    pub(super) fn limits(&self) -> [(&'static str, u32); 5] {
        [
            ("prompt.identity_bytes", self.identity_bytes.0),
            ("prompt.guidance_bytes", self.guidance_bytes.0),
            ("prompt.skills_bytes", self.skills_bytes.0),
            ("prompt.context_file_bytes", self.context_file_bytes.0),
            ("prompt.context_bytes", self.context_bytes.0),
        ]
    }
}

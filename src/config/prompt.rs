//! What goes into system prompts.

use serde::Deserialize;

use super::values::{AbsolutePaths, PositiveCount};

/// `prompt`: how much of each part there may be.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptSection {
    /// Bytes of the identity.
    pub identity_bytes: PositiveCount,
    /// Bytes of what is said of tools.
    pub guidance_bytes: PositiveCount,
    /// Bytes of the list of skills.
    pub skills_bytes: PositiveCount,
    /// Bytes of one context file.
    pub context_file_bytes: PositiveCount,
    /// Bytes of all context files.
    pub context_bytes: PositiveCount,
}

/// `skills`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillsSection {
    /// Folders that hold skills, besides those of the state directory and of the workspace.
    pub paths: AbsolutePaths,
}

impl PromptSection {
    /// Each with its key.
    pub(super) fn caps(&self) -> [(&'static str, u32); 5] {
        [
            ("prompt.identity_bytes", self.identity_bytes.0),
            ("prompt.guidance_bytes", self.guidance_bytes.0),
            ("prompt.skills_bytes", self.skills_bytes.0),
            ("prompt.context_file_bytes", self.context_file_bytes.0),
            ("prompt.context_bytes", self.context_bytes.0),
        ]
    }
}

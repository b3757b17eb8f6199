//! Skills as defined by agentskills.io: folders with a `SKILL.md`, whose front matter names their purpose.

mod catalogue;
mod file_excerpt;
mod front_matter;
mod variables;

pub use catalogue::{Catalogue, Skill, SkillFolders};
pub use file_excerpt::FileExcerpt;
pub(super) use front_matter::split;
pub use variables::{DeclaredVariables, own_variable};

//! Skills as agentskills.io has them: folders with a `SKILL.md`, whose front matter says what they are for.

mod catalogue;
mod front_matter;
mod source;

pub use catalogue::{Catalogue, Skill, SkillFolders};
pub(super) use front_matter::split;
pub use source::Source;

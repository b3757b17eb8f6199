use super::{
    Ground,
    cut::{Cut, Most, head},
};
use crate::tool::{
    SKILL_VIEW,
    skills::{Catalogue, Source},
};

/// What skills there are, for a session that can read them: as of its beginning.
pub(super) fn build(ground: &Ground<'_>) -> Cut {
    let found = ground.skills.read(&ground.occasion.workspace);
    let can_read = ground.occasion.tools.iter().any(|tool| tool == SKILL_VIEW);
    // Where there is nothing but what is wrong, nobody has the tool, and it is said all the same.
    if !can_read && !found.skills.is_empty() || found == Catalogue::default() {
        return Cut::default();
    }
    let skills = found.skills.iter().map(|skill| format!("- {}: {}", skill.name, skill.description));
    let left_out = found.left_out.iter().map(|why| format!("[left out: {why}]"));
    let lines: Vec<_> = std::iter::once("Skills:".to_owned()).chain(skills).chain(left_out).collect();
    head(&Source::of(&lines.join("\n")), Most::Bytes(ground.caps.skills_bytes.0 as usize))
}

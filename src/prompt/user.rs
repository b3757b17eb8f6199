use super::{Ground, cut::Cut, memory::noted};

/// What the agent knows of its user.
pub(super) fn build(ground: &Ground<'_>) -> Cut {
    let most = ground.memory.user_chars.0 as usize;
    noted(ground, ("USER.md", most), "What you know of the person you work for.")
}

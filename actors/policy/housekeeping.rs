/// Tools with which a model keeps its own house: what it says together with their calls may well be its last word.
const HOUSEKEEPING: [&str; 4] = ["memory", "session_search", "skill_manage", "todo"];

/// Whether a tool, by its registered name, does nothing for the task itself.
pub(crate) fn is_housekeeping(tool: &str) -> bool {
    HOUSEKEEPING.contains(&tool)
}

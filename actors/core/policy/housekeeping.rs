//! Names the tools that serve the model's own bookkeeping.

/// Tools that serve the model's own bookkeeping: text beside their calls may well be the final answer.
const HOUSEKEEPING: [&str; 4] = ["memory", "session_search", "skill_manage", "todo"];

/// Whether a tool, by its registered name, does no work on the task itself.
pub(crate) fn is_housekeeping(tool: &str) -> bool {
    HOUSEKEEPING.contains(&tool)
}

//! The name of `delegate_task`, and its definition for the model. The tool itself is in `builtin_tools.rs`.

use serde_json::{Value, json};

use crate::model::{MAX_EXPECTATIONS, ToolSpec};

/// The name of the tool by which a run gives tasks to subagents.
pub const DELEGATE_TASK: &str = "delegate_task";

const DESCRIPTION: &str = "Gives a task to a subagent with a conversation of its own, or several tasks to several that work \
                           at the same time. A subagent sees only `goal` and `context`: write into them all that it needs. \
                           Returns {outcome, answer, ...} of each; a failure is told the same way.";

/// The schema of what a task must leave behind; `task.rs` says which fields belong to a kind.
fn expects() -> Value {
    json!({
        "type": "array", "maxItems": MAX_EXPECTATIONS,
        "items": {
            "type": "object", "required": ["kind"], "additionalProperties": false,
            "properties": {
                "kind": {"enum": ["file", "schema", "text"]},
                "path": {"type": "string", "description": "Of `file` and `schema`: a file in the workspace."},
                "not_empty": {"type": "boolean", "description": "Of `file`: it must have content."},
                "newer": {"type": "boolean", "description": "Of `file`: the subagent must have written it."},
                "schema": {"type": "object", "description": "Of `schema`: what the JSON in the file has to match."},
                "contains": {"type": "string", "description": "Of `text`: a part of the answer."}
            }
        },
        "description": "What has to be there at the end. It is checked; if it misses twice, the task has failed."
    })
}

/// The tool's definition for the model.
pub fn tool_spec() -> ToolSpec {
    let text = |what: &str| json!({"type": "string", "description": what});
    let task = json!({
        "goal": text("What is to be done, whole and in itself understandable."),
        "context": text("What the subagent has to know: paths, findings, constraints."),
        "tools": {
            "type": "array", "items": {"type": "string"},
            "description": "The tools it may use; yours without this. None that you do not have."
        },
        "budget": {
            "type": "object", "additionalProperties": false,
            "properties": {
                "iterations": {"type": "integer", "minimum": 1},
                "tokens": {"type": "integer", "minimum": 1},
                "tool_calls": {"type": "integer", "minimum": 1},
                "usd": {"type": "number", "exclusiveMinimum": 0},
                "wall_s": {"type": "integer", "minimum": 1, "description": "Seconds of active time."}
            },
            "description": "What it may use up at most; it never has more than you have left."
        },
        "model": text("`provider/model` of your chain that it begins with; your first one without this."),
        "expects": expects()
    });
    let mut properties = task.clone();
    properties["tasks"] = json!({
        "type": "array", "minItems": 1,
        "items": {"type": "object", "required": ["goal"], "additionalProperties": false, "properties": task},
        "description": "Instead of `goal`: several tasks, each for a subagent of its own, all at the same time."
    });
    properties["background"] = json!({
        "type": "boolean",
        "description": "Go on at once; the results come when they are there. You cannot end before."
    });
    let parameters = json!({"type": "object", "additionalProperties": false, "properties": properties});
    ToolSpec { name: DELEGATE_TASK.into(), description: DESCRIPTION.into(), parameters }
}

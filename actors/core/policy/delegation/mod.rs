//! The tool `delegate_task`: its definition, the tasks in a call's arguments, the spec of a task's run, and the report
//! of that run's end. Pure; rights only shrink from parent to subagent. `turn/delegate.rs` starts the runs.

mod report;
mod spec;
mod subagent;
mod task;

pub use report::{SubagentReport, max_answer_bytes, removed_subagent_end};
pub use spec::{DELEGATE_TASK, tool_spec};
pub(crate) use subagent::{subagent_input, subagent_spec};
pub use task::parse_delegation;
pub(crate) use task::{DelegatedTask, DelegationRequest};

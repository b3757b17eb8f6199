//! `delegate_task`: parses the arguments of a call into tasks, and a task into the spec of the run that does it. Pure;
//! rights only shrink from parent to subagent.

mod report;
mod spec;
mod subagent;
mod task;

pub use report::{SubagentReport, max_answer_bytes, removed_subagent_end};
pub use spec::DELEGATE_TASK;
pub use spec::tool_spec;
pub(crate) use subagent::{subagent_input, subagent_spec};
pub use task::{ArgumentError, parse_delegation};
pub(crate) use task::{DelegatedTask, DelegationRequest};

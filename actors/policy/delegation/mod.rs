//! `delegate_task`: from the arguments of a call to the tasks that it gives away, and from a task to the spec of the
//! run that does it. Pure; rights only shrink on the way down.

mod spec;
mod subagent;
mod task;

pub use spec::DELEGATE_TASK;
pub(crate) use spec::tool_spec;
pub(crate) use subagent::{subagent_input, subagent_spec};
pub(crate) use task::{ArgumentError, DelegatedTask, DelegationRequest, parse_delegation};

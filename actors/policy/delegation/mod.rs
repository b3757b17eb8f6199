//! `delegate_task`: from the arguments of a call to the tasks that it gives away, and from a task to the spec of the
//! run that does it. Pure; rights only shrink on the way down.

mod child;
mod spec;
mod task;

pub(crate) use child::{child_spec, child_text};
pub use spec::DELEGATE_TASK;
pub(crate) use spec::tool_spec;
pub(crate) use task::{Misorder, Order, Task, order};

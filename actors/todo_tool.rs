//! `todo` as a tool: its definition for the model, and the check of its arguments. The session answers its calls
//! itself; the tool never runs.

use std::future::ready;

use serde_json::Value;

use crate::{
    model::{CallEnd, CallStatus, EffectClass, ToolSpec},
    policy::todo::{parse_todo, tool_spec},
    port::{BadArguments, PreparedCall, Tool},
};

/// The tool `todo`, as the registry has it.
#[derive(Debug)]
pub(crate) struct TodoTool(ToolSpec);

impl Default for TodoTool {
    fn default() -> Self {
        Self(tool_spec())
    }
}

impl Tool for TodoTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepares_without_blocking(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &Value, _workspace: &str) -> Result<PreparedCall, BadArguments> {
        parse_todo(arguments)?;
        // Never called: the session answers without a task.
        let end = CallEnd::error(CallStatus::Error, "the list is not kept by a task", None, "call it again");
        Ok(PreparedCall::new(EffectClass::Idempotent, |_| ready(end)))
    }
}

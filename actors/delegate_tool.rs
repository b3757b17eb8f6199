//! `delegate_task` as a tool: its definition for the model. `tool_executor/admission.rs` checks its arguments and the
//! session starts the subagents; the tool never runs. Also converts an error of arguments.

use std::future::ready;

use serde_json::Value;

use crate::{
    model::{CallEnd, CallStatus, EffectClass, ToolSpec},
    policy::delegation::{ArgumentError, tool_spec},
    port::{BadArguments, PreparedCall, Tool},
};

/// The tool `delegate_task`, as the registry has it.
#[derive(Debug)]
pub(crate) struct DelegateTool(ToolSpec);

impl Default for DelegateTool {
    fn default() -> Self {
        Self(tool_spec())
    }
}

impl Tool for DelegateTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepares_without_blocking(&self) -> bool {
        true
    }

    fn prepare(&self, _arguments: &Value, _workspace: &str) -> Result<PreparedCall, BadArguments> {
        // Never called: the session starts subagents instead.
        let end = CallEnd::error(CallStatus::Error, "a task is not run as a tool", None, "try another way");
        Ok(PreparedCall::new(EffectClass::Once, |_| ready(end)))
    }
}

impl From<ArgumentError> for BadArguments {
    fn from(ArgumentError { field, error, hint }: ArgumentError) -> Self {
        Self { field, error, hint }
    }
}

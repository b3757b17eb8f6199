//! `todo` as a tool among the others: what the model is told of it, and what a call may say. Its calls are answered by the
//! session itself, and never run.

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;

use crate::{
    model::{CallEnd, CallStatus, EffectClass, ToolSpec},
    policy::todo::{parse_todo, tool_spec},
    port::{BadArguments, Intent, Invocation, Tool},
};

/// See the module.
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

    fn plans_without_blocking(&self) -> bool {
        true
    }

    fn plan(&self, arguments: &Value, _workspace: &str) -> Result<Intent, BadArguments> {
        parse_todo(arguments)?;
        Ok(EffectClass::Idempotent.into())
    }

    /// A session answers it without a task.
    fn run(&self, _invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        let end = CallEnd::error(CallStatus::Error, "the list is not kept by a task", None, "call it again");
        std::future::ready(end).boxed()
    }
}

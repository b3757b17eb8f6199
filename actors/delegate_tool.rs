//! `delegate_task` as a tool among the others: what the model is told of it. Its calls are the session's own, so that it is
//! planned by the runtime and never run.

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;

use crate::{
    model::{CallEnd, CallStatus, EffectClass, ToolSpec},
    policy::delegation::{ArgumentError, tool_spec},
    port::{BadArguments, Intent, Invocation, Tool},
};

/// See the module.
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

    fn plans_without_blocking(&self) -> bool {
        true
    }

    fn plan(&self, _arguments: &Value, _workspace: &str) -> Result<Intent, BadArguments> {
        Ok(EffectClass::Once.into())
    }

    /// A session that gives tasks away runs nothing for it.
    fn run(&self, _invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        let end = CallEnd::error(CallStatus::Error, "a task is not run as a tool", None, "try another way");
        std::future::ready(end).boxed()
    }
}

impl From<ArgumentError> for BadArguments {
    fn from(ArgumentError { field, error, hint }: ArgumentError) -> Self {
        Self { field, error, hint }
    }
}

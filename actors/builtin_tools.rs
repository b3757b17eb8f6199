//! The tools `clarify`, `delegate_task` and `todo`, which every runtime has: their definitions for the model. The session
//! asks the person, starts the subagents and keeps the list; the tools never run. `tool_executor/admission.rs` also checks the arguments of
//! `delegate_task` against its run.

use std::{future::ready, sync::Arc};

use serde_json::Value;

use crate::{
    model::{Access, CallEnd, CallStatus, EffectClass, Intent, ToolSpec},
    policy::{clarify, delegation, todo},
    port::{BadArguments, PreparedCall, Tool},
};

/// A tool whose calls the session answers itself.
#[derive(Debug)]
struct BuiltinTool {
    spec: ToolSpec,
    intent: Intent,
    check: fn(&Value) -> Result<(), BadArguments>,
}

/// The tools that every runtime has.
pub(crate) fn builtin_tools() -> [Arc<dyn Tool>; 3] {
    let clarify = BuiltinTool {
        spec: clarify::tool_spec(),
        intent: Intent { access: Access::Exclusive, ..EffectClass::Pure.into() },
        check: |arguments| clarify::parse_clarify(arguments).map(drop),
    };
    let delegate =
        BuiltinTool { spec: delegation::tool_spec(), intent: EffectClass::Once.into(), check: |_| Ok(()) };
    let todo = BuiltinTool {
        spec: todo::tool_spec(),
        intent: EffectClass::Idempotent.into(),
        check: |arguments| todo::parse_todo(arguments).map(drop),
    };
    [Arc::new(clarify), Arc::new(delegate), Arc::new(todo)]
}

impl Tool for BuiltinTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepares_without_blocking(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &Value, _workspace: &str) -> Result<PreparedCall, BadArguments> {
        (self.check)(arguments)?;
        // Never called: the session answers without a task.
        let end = CallEnd::error(CallStatus::Error, "it is not run as a tool", None, "try another way");
        Ok(PreparedCall::new(self.intent.clone(), |_| ready(end)))
    }
}

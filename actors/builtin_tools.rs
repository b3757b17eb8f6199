//! The tools `clarify`, `delegate_task` and `todo`, which every runtime has, and `message`, which those with targets have:
//! their definitions for the model. The session asks the person, starts the subagents, keeps the list and writes the
//! messages; the tools never run. `tool_executor/admission.rs` also checks the arguments of
//! `delegate_task` against its run.

use std::{fmt, future::ready, sync::Arc};

use serde_json::Value;

use crate::{
    model::{Access, CallEnd, CallStatus, EffectClass, Intent, ToolSpec},
    policy::{clarify, delegation, message, todo},
    port::{BadArguments, PreparedCall, Tool},
};

type ArgumentsCheck = Box<dyn Fn(&Value) -> Result<(), BadArguments> + Send + Sync>;

/// A tool whose calls the session answers itself.
struct BuiltinTool {
    spec: ToolSpec,
    intent: Intent,
    check: ArgumentsCheck,
}

/// The tools that every runtime has.
pub(crate) fn builtin_tools() -> [Arc<dyn Tool>; 3] {
    let clarify = BuiltinTool {
        spec: clarify::tool_spec(),
        intent: Intent { access: Access::Exclusive, ..EffectClass::Pure.into() },
        check: Box::new(|arguments| clarify::parse_clarify(arguments).map(drop)),
    };
    let delegate = BuiltinTool {
        spec: delegation::tool_spec(),
        intent: EffectClass::Once.into(),
        check: Box::new(|_| Ok(())),
    };
    let todo = BuiltinTool {
        spec: todo::tool_spec(),
        intent: EffectClass::Idempotent.into(),
        check: Box::new(|arguments| todo::parse_todo(arguments).map(drop)),
    };
    [Arc::new(clarify), Arc::new(delegate), Arc::new(todo)]
}

/// The tool `message` for these targets: names, each with what the operator says about it. Its calls put messages into the
/// outbox of the store; something outside of the runtime has to deliver them.
pub fn message_tool(targets: Vec<(String, String)>) -> Arc<dyn Tool> {
    Arc::new(BuiltinTool {
        spec: message::tool_spec(&targets, None),
        intent: EffectClass::Once.into(),
        check: Box::new(move |arguments| message::check_message(arguments, &targets, None).map(drop)),
    })
}

impl fmt::Debug for BuiltinTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Tool for BuiltinTool {
    fn is_answered_by_session(&self) -> bool {
        true
    }

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

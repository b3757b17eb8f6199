//! ToolExecutor: the control plane of tools. It holds the registry and the permits and never awaits a call: sessions
//! own the tasks of their calls.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    model::{CallEnd, CallStatus, Hash, RunSpec, ToolCall, ToolSpec},
    port::{Artifacts, Tool},
    turn::Plan,
};

/// What sessions see of the executor without asking it: the tools by name, and the permits.
#[derive(Debug)]
pub(crate) struct Tools {
    registry: BTreeMap<Arc<str>, Arc<dyn Tool>>,
    /// One for each tool call that may be under way in this process.
    pub(crate) permits: Arc<Semaphore>,
    /// Where whole outputs are kept.
    pub(crate) artifacts: Arc<dyn Artifacts>,
}

impl Tools {
    /// These tools, with so many calls at once.
    pub(crate) fn new(tools: Vec<Arc<dyn Tool>>, calls: usize, artifacts: Arc<dyn Artifacts>) -> Self {
        let registry = tools.into_iter().map(|tool| (tool.spec().name.as_str().into(), tool)).collect();
        Self { registry, permits: Arc::new(Semaphore::new(calls)), artifacts }
    }

    /// What the model is told of the tools in `allowed`, sorted by name.
    pub(crate) fn specs(&self, allowed: &[String]) -> Vec<ToolSpec> {
        let tools = self.registry.iter().filter(|(name, _)| allowed.iter().any(|a| **a == ***name));
        tools.map(|(_, tool)| tool.spec().clone()).collect()
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.registry.keys().map(ToString::to_string).collect()
    }

    /// The tool of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.registry.get(name)
    }

    /// Judges the calls of an answer, each for itself: nothing is run.
    pub(crate) fn plan(&self, calls: &[ToolCall], spec: &RunSpec) -> Arc<[Plan]> {
        calls.iter().map(|call| self.plan_one(call, spec)).collect()
    }

    fn plan_one(&self, call: &ToolCall, spec: &RunSpec) -> Plan {
        let allowed = &spec.tools;
        let Some((name, tool)) = self
            .registry
            .get_key_value(call.name.as_str())
            .filter(|(name, _)| allowed.iter().any(|allowed| **allowed == ***name))
        else {
            let error = format!("there is no tool `{}`", call.name);
            let hint = format!("the tools are: {}", allowed.join(", "));
            return refuse(&call.name, CallEnd::error(CallStatus::Error, &error, None, &hint));
        };
        let arguments = match arguments(&call.arguments) {
            Ok(arguments) => arguments,
            Err(error) => {
                let hint = "send the arguments as one JSON object";
                return refuse(name, CallEnd::error(CallStatus::Error, &error, None, hint));
            }
        };
        match catch_unwind(AssertUnwindSafe(|| tool.plan(&arguments, &spec.workspace))) {
            Ok(Ok(intent)) => Plan::Admit {
                tool: Arc::clone(name),
                intent,
                arguments: Hash::of(arguments.to_string().as_bytes()),
            },
            Ok(Err(bad)) => {
                refuse(name, CallEnd::error(CallStatus::Error, &bad.error, bad.field.as_deref(), &bad.hint))
            }
            Err(_) => {
                let error = format!("`{name}` panicked when it looked at the arguments");
                refuse(name, CallEnd::error(CallStatus::Error, &error, None, "try another way"))
            }
        }
    }
}

fn refuse(tool: &str, end: CallEnd) -> Plan {
    Plan::Refuse { tool: tool.into(), end }
}

/// Reads the arguments of a call: none at all means `{}`, and JSON within a JSON string is unwrapped.
pub(crate) fn arguments(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let read = |text: &str| {
        serde_json::from_str::<Value>(text).map_err(|error| format!("the arguments are not JSON: {error}"))
    };
    let value = match read(text)? {
        Value::String(inner) => read(&inner)?,
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            value
        }
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_) => {
            Err(format!("the arguments are {value}, not a JSON object"))
        }
    }
}

/// What the executor has seen since the process began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolStatus {
    /// Calls that ended, by tool.
    pub ended: BTreeMap<String, u64>,
    /// Tasks that ended without a word, by tool.
    pub lost: BTreeMap<String, u64>,
}

/// The messages of [`ToolExecutor`].
#[derive(Debug)]
pub(crate) enum ToolExecutorMsg {
    /// A call of this tool ended.
    Ended(Arc<str>),
    /// The task of a call of this tool ended without a word.
    Lost(Arc<str>),
    /// What has been seen.
    Status(RpcReplyPort<ToolStatus>),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct ToolExecutor;

impl Actor for ToolExecutor {
    type Msg = ToolExecutorMsg;
    type State = ToolStatus;
    type Arguments = ();

    async fn pre_start(
        &self,
        _me: ActorRef<ToolExecutorMsg>,
        (): (),
    ) -> Result<ToolStatus, ActorProcessingErr> {
        Ok(ToolStatus::default())
    }

    async fn handle(
        &self,
        _me: ActorRef<ToolExecutorMsg>,
        message: ToolExecutorMsg,
        status: &mut ToolStatus,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ToolExecutorMsg::Ended(tool) => *status.ended.entry(tool.as_ref().into()).or_default() += 1,
            ToolExecutorMsg::Lost(tool) => *status.lost.entry(tool.as_ref().into()).or_default() += 1,
            ToolExecutorMsg::Status(reply) => {
                if reply.send(status.clone()).is_err() {
                    tracing::debug!("nobody waits for the status of the tools any more");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_models_write_them() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let read = arguments(text).map(|value| value.to_string());
            match expected {
                Ok(json) => assert_eq!(read.as_deref(), Ok(json), "{text}"),
                Err(part) => assert!(read.as_ref().is_err_and(|e| e.contains(part)), "{text}: {read:?}"),
            }
        };
        check("", Ok("{}"));
        check("null", Ok("{}"));
        check(r#"{"a":1}"#, Ok(r#"{"a":1}"#));
        check(r#""{\"a\":1}""#, Ok(r#"{"a":1}"#));
        check("[1]", Err("[1], not a JSON object"));
        check(r#"{"a":"#, Err("EOF"));
    }
}

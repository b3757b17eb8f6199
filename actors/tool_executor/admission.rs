//! Admission of the calls of an answer: finds the tool that a call means, and whether the tool accepts the arguments.
//! Runs nothing and records nothing.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use super::generation::ToolGeneration;
use crate::{
    model::{CallEnd, CallStatus, EffectClass, Hash, ModelAnswer, RunSpec, ToolCall},
    policy::{
        ArgumentsParseError,
        delegation::{DELEGATE_TASK, parse_delegation},
        match_tool_name, parse_arguments,
        todo::TODO,
    },
    port::BadArguments,
    turn::{CallAdmission, CallRejection},
};

/// Most bytes of arguments that are parsed on an async worker thread. Parsing more takes longer than a change of
/// threads.
pub(crate) const MAX_INLINE_PARSE_BYTES: usize = 16 * 1024;
/// Most bytes of arguments of a call that a session's handler processes itself.
const MAX_HANDLER_BYTES: usize = 1 << 20;
/// Limit for admitting the calls of an answer. The work is bounded, but it may wait for a file system.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit once the run is being stopped.
const STOPPED_ADMISSION_TIMEOUT: Duration = Duration::from_secs(1);

impl ToolGeneration {
    /// Admits or rejects each call of an answer; runs none. Work that could block happens on a blocking thread; calls
    /// that are not decided in time are rejected.
    pub(crate) async fn admit_calls(
        self: &Arc<Self>,
        answer: &Arc<ModelAnswer>,
        spec: &Arc<RunSpec>,
        cancel: &CancellationToken,
    ) -> Arc<[CallAdmission]> {
        let calls = &answer.message.calls;
        if calls.iter().all(|call| self.is_quick(call, spec)) {
            return self.admit_all(calls, spec);
        }
        let (tools, judged, of) = (Arc::clone(self), Arc::clone(answer), Arc::clone(spec));
        let work = spawn_blocking(move || tools.admit_all(&judged.message.calls, &of));
        let stopped = async {
            cancel.cancelled().await;
            sleep(STOPPED_ADMISSION_TIMEOUT).await;
        };
        tokio::select! {
            biased;
            done = work => match done {
                Ok(plans) => plans,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    // The process ends.
                    Err(_) => std::future::pending().await,
                },
            },
            () = stopped => calls.iter().map(|_| admission_timeout(STOPPED_ADMISSION_TIMEOUT)).collect(),
            () = sleep(ADMISSION_TIMEOUT) => calls.iter().map(|_| admission_timeout(ADMISSION_TIMEOUT)).collect(),
        }
    }

    fn is_quick(&self, call: &ToolCall, spec: &RunSpec) -> bool {
        let known: Vec<&str> = self.allowed(&spec.tools).map(|(name, _)| &**name).collect();
        let tool = match_tool_name(&call.name, &known).and_then(|name| self.get(name));
        call.arguments.len() <= MAX_INLINE_PARSE_BYTES
            && tool.is_none_or(|tool| tool.plans_without_blocking())
    }

    /// Admits or rejects each call of an answer; runs none.
    fn admit_all(&self, calls: &[ToolCall], spec: &RunSpec) -> Arc<[CallAdmission]> {
        calls.iter().map(|call| self.admit_one(call, spec)).collect()
    }

    fn admit_one(&self, call: &ToolCall, spec: &RunSpec) -> CallAdmission {
        let known: Vec<&str> = self.allowed(&spec.tools).map(|(name, _)| &**name).collect();
        let found = match_tool_name(&call.name, &known).and_then(|name| self.get_key_value(name));
        let Some((name, tool)) = found else {
            let error = format!("there is no tool `{}`", call.name);
            let hint = format!("the tools are: {}", known.join(", "));
            return reject(CallRejection::UnknownTool, &error, None, &hint);
        };
        let is_answered_in_handler = **name == *DELEGATE_TASK || **name == *TODO;
        if is_answered_in_handler && call.arguments.len() > MAX_HANDLER_BYTES {
            let error =
                format!("the arguments have {} bytes, more than {MAX_HANDLER_BYTES}", call.arguments.len());
            return reject(
                CallRejection::Unacceptable,
                &error,
                None,
                "put long texts into files, and name those",
            );
        }
        let arguments = match parse_arguments(&call.arguments) {
            Ok(arguments) => arguments,
            Err(error @ ArgumentsParseError::Malformed { .. }) => {
                return reject(CallRejection::Malformed, &error.to_string(), None, ONE_OBJECT_HINT);
            }
            Err(error @ ArgumentsParseError::NotAnObject(_)) => {
                return reject(CallRejection::Unacceptable, &error.to_string(), None, ONE_OBJECT_HINT);
            }
        };
        let planned = || match **name == *DELEGATE_TASK {
            true => parse_delegation(&arguments, spec)
                .map(|_| EffectClass::Once.into())
                .map_err(BadArguments::from),
            false => tool.plan(&arguments, &spec.workspace),
        };
        match catch_unwind(AssertUnwindSafe(planned)) {
            Ok(Ok(intent)) => {
                CallAdmission::Admit { tool: Arc::clone(name), intent, arguments: hash(arguments) }
            }
            Ok(Err(bad)) => reject(CallRejection::Unacceptable, &bad.error, bad.field.as_deref(), &bad.hint),
            Err(_) => {
                let error = format!("`{name}` panicked when it looked at the arguments");
                reject(CallRejection::Unacceptable, &error, None, "try another way")
            }
        }
    }
}

const ONE_OBJECT_HINT: &str = "send the arguments as one JSON object";

fn admission_timeout(waited: Duration) -> CallAdmission {
    let error = format!("the arguments could not be judged within {} s", waited.as_secs());
    let hint =
        "the file system of the workspace does not answer: try again later, or ask the operator to look";
    reject(CallRejection::Unacceptable, &error, None, hint)
}

fn reject(fault: CallRejection, error: &str, field: Option<&str>, hint: &str) -> CallAdmission {
    CallAdmission::Reject { rejection: fault, end: CallEnd::error(CallStatus::Error, error, field, hint) }
}

/// The hash of the arguments; independent of the order of fields.
fn hash(mut arguments: Value) -> Hash {
    arguments.sort_all_objects();
    Hash::of(arguments.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        doubles::{MemoryArtifacts, ScriptedTool},
        model::{EffectClass, ModelRef},
        port::Tool,
        tool_executor::ToolExecutorHandle,
    };

    fn plan(name: &str, arguments: &str) -> CallAdmission {
        let tool = |name: &str| Arc::new(ScriptedTool::fixed(name, EffectClass::Once, "")) as Arc<dyn Tool>;
        let tools = vec![tool("read"), tool("hidden")];
        let executor =
            ToolExecutorHandle::new(tools, 1, Arc::new(MemoryArtifacts::default())).expect("they are valid");
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.into() };
        let model = ModelRef::new("test", "model").expect("two names");
        let spec = RunSpec { tools: vec!["read".into()], ..RunSpec::new(vec![model], "/workspace") };
        executor.tools().admit_all(&[call], &spec)[0].clone()
    }

    /// Checks that the call is rejected for this reason, and that the model reads `part`.
    #[track_caller]
    fn check_refused(name: &str, arguments: &str, (fault, part): (CallRejection, &str)) {
        let plan = plan(name, arguments);
        let CallAdmission::Reject { rejection: told, end } = plan else {
            panic!("{name} {arguments} is admitted")
        };
        assert_eq!((told, end.status), (fault, CallStatus::Error), "{name} {arguments}");
        assert!(end.content.contains(part), "{}", end.content);
    }

    #[test]
    fn calls_are_judged() {
        check_refused("weather", "{}", (CallRejection::UnknownTool, "the tools are: read"));
        check_refused("hidden", "{}", (CallRejection::UnknownTool, "there is no tool `hidden`"));
        check_refused("weather", "{", (CallRejection::UnknownTool, "there is no tool `weather`"));
        check_refused(
            "read",
            "{",
            (CallRejection::Malformed, "EOF while parsing an object at line 1 column 1"),
        );
        check_refused("read", "[]", (CallRejection::Unacceptable, "not a JSON object"));
        let admitted = CallAdmission::Admit {
            tool: "read".into(),
            intent: EffectClass::Once.into(),
            arguments: hash(json!({"a": 1, "b": [2]})),
        };
        for (name, arguments) in [
            ("read", r#"{"a":1,"b":[2]}"#),
            ("ReadTool", r#"{"b":[2],"a":1}"#),
            ("red", r#""{\"a\":1,\"b\":[2]}""#),
        ] {
            assert_eq!(plan(name, arguments), admitted, "{name} {arguments}");
        }
    }
}

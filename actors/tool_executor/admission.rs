//! Admission of the tool calls of an answer: finds the tool that a call means, has it prepare the call, has the policy
//! judge it, and gives the verdict. Runs nothing and records nothing. The core (`turn/answer.rs`) records the verdict as `call.admitted`, or as
//! the end of a rejected call. The session keeps a prepared call until its start; `prepare_call` prepares one again
//! after a restart. Permits are in `handle.rs`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Weak},
    time::Duration,
};

use serde_json::Value;
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use super::generation::{RegisteredTool, ToolGeneration};
use crate::{
    model::{CallEnd, Hash, ModelAnswer, RunSpec, ToolCall},
    policy::{
        ArgumentsParseError,
        clarify::CLARIFY,
        delegation::{DELEGATE_TASK, parse_delegation},
        match_tool_name,
        message::MESSAGE,
        parse_arguments,
        todo::TODO,
    },
    port::{BadArguments, CallPolicy, CallVerdict, PreparedCall, ProposedCall},
    turn::{CallAdmission, CallRejection},
};

/// Most bytes of arguments that are parsed on an async worker thread. Parsing more takes longer than a change of
/// threads.
const MAX_INLINE_PARSE_BYTES: usize = 16 * 1024;
/// Most bytes of arguments of a call that a session's handler processes itself.
const MAX_HANDLER_BYTES: usize = 1 << 20;
/// Limit for admitting the calls of an answer. The work is bounded, but it may wait for a file system.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit once the run is being stopped.
const STOPPED_ADMISSION_TIMEOUT: Duration = Duration::from_secs(1);

/// A call that was prepared at its admission, until it starts.
#[derive(Debug)]
pub(crate) struct AdmittedCall {
    tool: Weak<RegisteredTool>,
    call: PreparedCall,
}

impl AdmittedCall {
    /// The call, if this tool has prepared it: the tools may have been exchanged since.
    pub(crate) fn prepared_by(self, tool: &Arc<RegisteredTool>) -> Option<PreparedCall> {
        std::ptr::eq(self.tool.as_ptr(), Arc::as_ptr(tool)).then_some(self.call)
    }
}

/// The verdict on a call, and the call if it is admitted.
pub(crate) type Admission = (CallAdmission, Option<AdmittedCall>);

/// Why a call is rejected, and the error for the model.
type Rejection = (CallRejection, BadArguments);

impl ToolGeneration {
    /// Admits or rejects each call of an answer; runs none. Work that could block happens on a blocking thread; calls
    /// that are not decided in time are rejected.
    pub(crate) async fn admit_calls(
        self: &Arc<Self>,
        answer: &Arc<ModelAnswer>,
        spec: &Arc<RunSpec>,
        policy: &Arc<dyn CallPolicy>,
        cancel: &CancellationToken,
    ) -> Vec<Admission> {
        let calls = &answer.message.calls;
        if calls.iter().all(|call| self.is_quick(call, spec)) {
            return self.admit_all(calls, spec, &**policy);
        }
        let (tools, answer) = (Arc::clone(self), Arc::clone(answer));
        let (spec, policy) = (Arc::clone(spec), Arc::clone(policy));
        let admit = move || tools.admit_all(&answer.message.calls, &spec, &*policy);
        let admitted = run_blocking(cancel, admit).await;
        let rejected = |error: BadArguments| {
            let admission = reject((CallRejection::Unacceptable, error));
            calls.iter().map(|_| (admission.clone(), None)).collect()
        };
        admitted.unwrap_or_else(rejected)
    }

    fn is_quick(&self, call: &ToolCall, spec: &RunSpec) -> bool {
        let known: Vec<&str> = self.allowed(&spec.tools).map(|(name, _)| &**name).collect();
        let tool = match_tool_name(&call.name, &known).and_then(|name| self.get(name));
        call.arguments.len() <= MAX_INLINE_PARSE_BYTES
            && tool.is_none_or(|tool| tool.prepares_without_blocking())
    }

    /// Admits or rejects each call of an answer; runs none.
    fn admit_all(&self, calls: &[ToolCall], spec: &RunSpec, policy: &dyn CallPolicy) -> Vec<Admission> {
        let admit =
            |call| self.admit_one(call, spec, policy).unwrap_or_else(|rejection| (reject(rejection), None));
        calls.iter().map(admit).collect()
    }

    fn admit_one(
        &self,
        call: &ToolCall,
        spec: &RunSpec,
        policy: &dyn CallPolicy,
    ) -> Result<Admission, Rejection> {
        let known: Vec<&str> = self.allowed(&spec.tools).map(|(name, _)| &**name).collect();
        let found = match_tool_name(&call.name, &known).and_then(|name| self.get_key_value(name));
        let Some((name, tool)) = found else {
            let error = format!("there is no tool `{}`", call.name);
            let hint = format!("the tools are: {}", known.join(", "));
            return Err((CallRejection::UnknownTool, BadArguments::new(None, error, hint)));
        };
        let is_answered_in_handler = [CLARIFY, DELEGATE_TASK, MESSAGE, TODO].contains(&&**name);
        if is_answered_in_handler && call.arguments.len() > MAX_HANDLER_BYTES {
            let error =
                format!("the arguments have {} bytes, more than {MAX_HANDLER_BYTES}", call.arguments.len());
            return Err(unacceptable(error, "put long texts into files, and name those"));
        }
        let (prepared, arguments) = tool.prepare_text(&call.arguments, spec)?;
        let RunSpec { agent, workspace, .. } = spec;
        let proposed = ProposedCall { agent, tool: name, arguments: &arguments, workspace };
        let approval = match judge(policy, &proposed) {
            CallVerdict::Allow => None,
            CallVerdict::Ask(need) => Some(need),
            CallVerdict::Deny(reason) => return Err((CallRejection::Unacceptable, reason)),
        };
        let admission = CallAdmission::Admit {
            tool: Arc::clone(name),
            intent: prepared.intent.clone(),
            arguments: hash(arguments),
            approval,
            hooks: None,
        };
        Ok((admission, Some(AdmittedCall { tool: Arc::downgrade(tool), call: prepared })))
    }
}

impl RegisteredTool {
    /// Prepares a call of a run of this spec; on a blocking thread if that could take long. The error is the end of the
    /// call.
    pub(crate) async fn prepare_call(
        self: &Arc<Self>,
        text: &Arc<str>,
        spec: &Arc<RunSpec>,
        cancel: &CancellationToken,
    ) -> Result<PreparedCall, CallEnd> {
        let prepared = if text.len() <= MAX_INLINE_PARSE_BYTES && self.prepares_without_blocking() {
            self.prepare_text(text, spec)
        } else {
            let (tool, text, spec) = (Arc::clone(self), Arc::clone(text), Arc::clone(spec));
            run_blocking(cancel, move || tool.prepare_text(&text, &spec)).await?
        };
        prepared.map(|(call, _)| call).map_err(|(_, bad)| bad.into())
    }

    /// Parses the arguments of a call, and has the tool prepare it.
    fn prepare_text(&self, text: &str, spec: &RunSpec) -> Result<(PreparedCall, Value), Rejection> {
        let arguments = parse_arguments(text).map_err(|error| {
            let rejection = match error {
                ArgumentsParseError::Malformed { .. } => CallRejection::Malformed,
                ArgumentsParseError::NotAnObject(_) => CallRejection::Unacceptable,
            };
            (rejection, BadArguments::new(None, error.to_string(), "send the arguments as one JSON object"))
        })?;
        let name = &self.spec().name;
        let prepare = || {
            if name == DELEGATE_TASK {
                parse_delegation(&arguments, spec)?;
            }
            self.prepare(&arguments, &spec.workspace)
        };
        match catch_unwind(AssertUnwindSafe(prepare)) {
            Ok(Ok(call)) => Ok((call, arguments)),
            Ok(Err(bad)) => Err((CallRejection::Unacceptable, bad)),
            Err(_) => {
                let error = format!("`{name}` panicked when it looked at the arguments");
                Err(unacceptable(error, "try another way"))
            }
        }
    }
}

/// The policy's verdict on a call. A panic of the policy denies the call.
pub(crate) fn judge(policy: &dyn CallPolicy, call: &ProposedCall<'_>) -> CallVerdict {
    catch_unwind(AssertUnwindSafe(|| policy.judge(call))).unwrap_or_else(|_| {
        let error = format!("the policy panicked when it judged a call of `{}`, so it is denied", call.tool);
        CallVerdict::Deny(BadArguments::new(None, error, "try another way"))
    })
}

/// Awaits work on a blocking thread, or gives it up in time.
async fn run_blocking<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BadArguments> {
    let stopped = async {
        cancel.cancelled().await;
        sleep(STOPPED_ADMISSION_TIMEOUT).await;
    };
    let waited = tokio::select! {
        biased;
        done = spawn_blocking(work) => match done {
            Ok(done) => return Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The process ends.
                Err(_) => std::future::pending().await,
            },
        },
        () = stopped => STOPPED_ADMISSION_TIMEOUT,
        () = sleep(ADMISSION_TIMEOUT) => ADMISSION_TIMEOUT,
    };
    let error = format!("the arguments could not be judged within {} s", waited.as_secs());
    let hint =
        "the file system of the workspace does not answer: try again later, or ask the operator to look";
    Err(BadArguments::new(None, error, hint))
}

fn unacceptable(error: String, hint: &str) -> Rejection {
    (CallRejection::Unacceptable, BadArguments::new(None, error, hint))
}

fn reject((rejection, bad): Rejection) -> CallAdmission {
    CallAdmission::Reject { rejection, end: bad.into() }
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
        model::{CallStatus, EffectClass, ModelRef},
        port::{AllowAllCalls, Tool},
        tool_executor::ToolExecutorHandle,
    };

    fn plan(name: &str, arguments: &str) -> CallAdmission {
        let tool = |name: &str| Arc::new(ScriptedTool::fixed(name, EffectClass::Once, "")) as Arc<dyn Tool>;
        let tools = vec![tool("read"), tool("hidden")];
        let executor =
            ToolExecutorHandle::new(tools, 1, Arc::new(MemoryArtifacts::default()), Arc::new(AllowAllCalls))
                .expect("they are valid");
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.into() };
        let model = ModelRef::new("test", "model").expect("two names");
        let spec = RunSpec { tools: vec!["read".into()], ..RunSpec::new(vec![model], "/workspace") };
        executor.tools().admit_all(&[call], &spec, &AllowAllCalls).remove(0).0
    }

    /// Checks that the call is rejected for this reason, and that the model reads `part`.
    #[track_caller]
    fn check_refused(name: &str, arguments: &str, (fault, part): (CallRejection, &str)) {
        let plan = plan(name, arguments);
        let CallAdmission::Reject { rejection, end } = plan else { panic!("{name} {arguments} is admitted") };
        assert_eq!((rejection, end.status), (fault, CallStatus::Error), "{name} {arguments}");
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
            approval: None,
            hooks: None,
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

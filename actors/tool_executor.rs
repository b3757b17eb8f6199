//! ToolExecutor: the control plane of tools. It holds the registry and the permits, and never awaits a call: sessions
//! own the tasks of their calls.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Duration,
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;
use tokio::{sync::Semaphore, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    delegate_tool::DelegateTool,
    inspect::Inspect,
    model::{
        Attempt, CallEnd, CallId, CallStatus, EffectClass, Hash, ModelAnswer, RunId, RunSpec, ToolCall,
        ToolSpec,
    },
    policy::{
        ArgumentsParseError,
        delegation::{DELEGATE_TASK, parse_delegation},
        match_tool_name, parse_arguments,
        todo::TODO,
    },
    port::{Artifacts, BadArguments, Tool},
    todo_tool::TodoTool,
    turn::{CallAdmission, CallRejection},
};

/// Most bytes of arguments that are parsed on an async worker thread: parsing more takes longer than the change of
/// threads.
pub(crate) const MAX_INLINE_PARSE_BYTES: usize = 16 * 1024;
/// Most bytes of arguments of a call that a session's handler processes itself.
const MAX_HANDLER_BYTES: usize = 1 << 20;
/// Limit for admitting the calls of an answer: bounded work, which may wait for a file system.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit once the run is being stopped.
const STOPPED_ADMISSION_TIMEOUT: Duration = Duration::from_secs(1);

/// The tools by name, and the permits; sessions use them without a message to the executor.
#[derive(Debug)]
pub(crate) struct ToolRegistry {
    registry: BTreeMap<Arc<str>, Arc<dyn Tool>>,
    /// One permit for each concurrent tool call of this process.
    pub(crate) permits: Arc<Semaphore>,
    /// The store of whole outputs.
    pub(crate) artifacts: Arc<dyn Artifacts>,
}

impl ToolRegistry {
    /// These tools; `calls` bounds the concurrent calls.
    pub(crate) fn new(mut tools: Vec<Arc<dyn Tool>>, calls: usize, artifacts: Arc<dyn Artifacts>) -> Self {
        tools.push(Arc::new(DelegateTool::default()));
        tools.push(Arc::new(TodoTool::default()));
        let registry = tools.into_iter().map(|tool| (tool.spec().name.as_str().into(), tool)).collect();
        Self { registry, permits: Arc::new(Semaphore::new(calls)), artifacts }
    }

    /// The definitions for the model of the tools in `allowed`, sorted by name.
    pub(crate) fn specs(&self, allowed: &[String]) -> Vec<ToolSpec> {
        self.allowed(allowed).map(|(_, tool)| tool.spec().clone()).collect()
    }

    /// The bytes of these definitions as JSON.
    pub(crate) fn schema_bytes(&self, allowed: &[String]) -> u64 {
        let bytes = |tool: &Arc<dyn Tool>| serde_json::to_vec(tool.spec()).map_or(0, |json| json.len());
        self.allowed(allowed).map(|(_, tool)| bytes(tool) as u64).sum()
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.registry.keys().map(ToString::to_string).collect()
    }

    /// The tool of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.registry.get(name)
    }

    /// The end of this attempt is durable: tools drop the data that they keep to attach to it.
    pub(crate) fn forget(&self, call: CallId, attempt: Attempt) {
        self.registry.values().for_each(|tool| tool.forget(call, attempt));
    }

    /// The run was ended without the ends of its calls: tools end those that still run.
    pub(crate) fn abandon(&self, run: RunId) {
        self.registry.values().for_each(|tool| tool.abandon(run));
    }

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
        let found = match_tool_name(&call.name, &known).and_then(|name| self.registry.get_key_value(name));
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

    /// The tools in `allowed`, sorted by name.
    fn allowed<'a>(
        &'a self,
        allowed: &'a [String],
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<dyn Tool>)> {
        self.registry.iter().filter(|(name, _)| allowed.iter().any(|allowed| **allowed == ***name))
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

/// Counts of the executor since its actor started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolStatus {
    /// Calls that ended, by tool.
    pub ended: BTreeMap<String, u64>,
    /// Tasks that ended without a report, by tool.
    pub lost: BTreeMap<String, u64>,
}

/// The messages of [`ToolExecutorActor`].
#[derive(Debug)]
pub(crate) enum ToolExecutorMsg {
    /// A call of this tool ended.
    Ended(Arc<str>),
    /// The task of a call of this tool ended without a report.
    Lost(Arc<str>),
    /// Inspects the counts.
    Inspect(Inspect<ToolStatus>),
}

#[derive(Debug)]
pub(crate) struct ToolExecutorActor;

impl Actor for ToolExecutorActor {
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
            ToolExecutorMsg::Inspect(look) => look.run(status)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        doubles::{MemoryArtifacts, ScriptedTool},
        model::{EffectClass, ModelRef},
    };

    fn plan(name: &str, arguments: &str) -> CallAdmission {
        let tool = |name: &str| Arc::new(ScriptedTool::fixed(name, EffectClass::Once, "")) as Arc<dyn Tool>;
        let tools =
            ToolRegistry::new(vec![tool("read"), tool("hidden")], 1, Arc::new(MemoryArtifacts::default()));
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.into() };
        let model = ModelRef::new("test", "model").expect("two names");
        let spec = RunSpec { tools: vec!["read".into()], ..RunSpec::new(vec![model], "/workspace") };
        tools.admit_all(&[call], &spec)[0].clone()
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

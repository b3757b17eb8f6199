//! Simulated tools. Their executions are recorded in the external world.

use std::{future::pending, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    external_world::{EndKind, ExternalWorld},
    plan::{ToolBehaviour, ToolKind},
};
use hermod_actors::{
    model::{Access, Attempt, AttemptId, CallEnd, CallStatus, EffectClass, ToolSpec},
    port::{AttachOutcome, BadArguments, Boot, CallWork, Intent, Invocation, PreparedCall, Tool},
};

/// The arguments of a simulated call.
#[derive(Debug, Deserialize)]
struct SimulatedArguments {
    of: String,
    ms: u64,
    does: ToolBehaviour,
    /// Bytes of padding added to the result.
    #[serde(default)]
    pad: usize,
}

/// A simulated tool of one kind.
#[derive(Debug)]
pub(super) struct SimulatedTool {
    kind: ToolKind,
    spec: ToolSpec,
    outside: Arc<ExternalWorld>,
}

impl SimulatedTool {
    pub(super) fn new(kind: ToolKind, outside: Arc<ExternalWorld>) -> Self {
        let spec = ToolSpec {
            name: kind.name().into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        Self { kind, spec, outside }
    }
}

impl Tool for SimulatedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepares_without_blocking(&self) -> bool {
        true
    }

    fn prepare(&self, arguments: &Value, _: &str) -> Result<PreparedCall, BadArguments> {
        let arguments: SimulatedArguments = serde_json::from_value(arguments.clone())
            .map_err(|error| BadArguments { field: None, error: error.to_string(), hint: "none".into() })?;
        let panics = arguments.does == ToolBehaviour::PlanPanics
            && self.outside.is_first(format!("plan {}", arguments.of));
        let is_due = panics || arguments.does != ToolBehaviour::PlanPanics;
        if let Some(wrong) = arguments.does.name().filter(|_| is_due) {
            self.outside.record_fault(wrong);
        }
        assert!(!panics, "planned: the tool panics when it looks at its arguments");
        let intent = |effect: EffectClass| Intent::from(effect);
        let intent = match self.kind {
            ToolKind::Look => intent(EffectClass::Pure),
            ToolKind::Put => {
                Intent { access: Access::writes("/workspace/a"), ..intent(EffectClass::Idempotent) }
            }
            ToolKind::Send => intent(EffectClass::Once),
            ToolKind::Build => {
                Intent { access: Access::Anything, detached: true, ..intent(EffectClass::Once) }
            }
        };
        let outside = Arc::clone(&self.outside);
        Ok(PreparedCall::new(intent, SimulatedCall { kind: self.kind, arguments, outside }))
    }
}

/// A call whose arguments were accepted.
struct SimulatedCall {
    kind: ToolKind,
    arguments: SimulatedArguments,
    outside: Arc<ExternalWorld>,
}

impl CallWork for SimulatedCall {
    fn run(self: Box<Self>, invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        let Self { kind, arguments, outside } = *self;
        async move {
            let end = match kind {
                ToolKind::Look | ToolKind::Put | ToolKind::Send => {
                    run_in_process(outside, kind, &invocation, &arguments).await
                }
                ToolKind::Build => {
                    let id = AttemptId { call: invocation.call, attempt: invocation.attempt };
                    let ms = arguments.ms;
                    let ms = (arguments.does != ToolBehaviour::Hang).then_some(ms);
                    outside.lock().launch(id, arguments.does, ms);
                    panic_if(&arguments, id.attempt);
                    wait_for_command(outside, id, &invocation.cancel)
                        .await
                        .unwrap_or_else(|| CallEnd::error(CallStatus::InDoubt, "it was killed", None, "look"))
                }
            };
            padded(end, arguments.pad)
        }
        .boxed()
    }

    fn attach(self: Box<Self>, invocation: Invocation, _: Boot) -> BoxFuture<'static, AttachOutcome> {
        let Self { kind, arguments, outside } = *self;
        let id = AttemptId { call: invocation.call, attempt: invocation.attempt };
        async move {
            if kind != ToolKind::Build {
                return AttachOutcome::Unknown;
            }
            let is_known = outside.lock().command(id).is_some();
            if !is_known {
                outside.lock().fenced.insert(id);
                return AttachOutcome::NeverStarted;
            }
            let end = wait_for_command(outside, id, &invocation.cancel).await;
            end.map_or(AttachOutcome::Unknown, |end| AttachOutcome::Ended(padded(end, arguments.pad)))
        }
        .boxed()
    }
}

/// Pads a result with `bytes` bytes.
fn padded(mut end: CallEnd, bytes: usize) -> CallEnd {
    end.content = format!("{}{}", end.content, ".".repeat(bytes)).into();
    end
}

fn panic_if(arguments: &SimulatedArguments, attempt: Attempt) {
    let panics = match arguments.does {
        ToolBehaviour::PanicOnce => attempt == 1,
        ToolBehaviour::PanicAlways => true,
        ToolBehaviour::Well
        | ToolBehaviour::Fail
        | ToolBehaviour::Hang
        | ToolBehaviour::IgnoreStop
        | ToolBehaviour::PlanPanics => false,
    };
    assert!(!panics, "planned: the tool panics");
}

/// Executes a call within the process, so that it ends with it.
async fn run_in_process(
    outside: Arc<ExternalWorld>,
    kind: ToolKind,
    invocation: &Invocation,
    arguments: &SimulatedArguments,
) -> CallEnd {
    let id = AttemptId { call: invocation.call, attempt: invocation.attempt };
    let execution = outside.lock().start_execution(id, kind);
    let guard = ToolExecutionGuard { outside, execution };
    let half = Duration::from_millis(arguments.ms / 2);
    let work = async {
        tokio::time::sleep(half).await;
        panic_if(arguments, id.attempt);
        if arguments.does == ToolBehaviour::Hang {
            pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(arguments.ms.div_ceil(2))).await;
    };
    let cancelled = async {
        invocation.cancel.cancelled().await;
        if arguments.does == ToolBehaviour::IgnoreStop {
            pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = work => guard.finish(EndKind::Finished, planned_end(arguments.does)),
        () = cancelled => guard.finish(EndKind::Stopped, CallEnd::new(CallStatus::Stopped, "stopped")),
    }
}

fn planned_end(does: ToolBehaviour) -> CallEnd {
    match does {
        ToolBehaviour::Fail => CallEnd::error(CallStatus::Error, "planned", None, "none"),
        ToolBehaviour::Well
        | ToolBehaviour::PanicOnce
        | ToolBehaviour::PanicAlways
        | ToolBehaviour::Hang
        | ToolBehaviour::IgnoreStop
        | ToolBehaviour::PlanPanics => CallEnd::ok("done"),
    }
}

/// Waits for a command's end. `None` if the command is unknown or its end was lost.
async fn wait_for_command(
    outside: Arc<ExternalWorld>,
    id: AttemptId,
    cancel: &CancellationToken,
) -> Option<CallEnd> {
    loop {
        let (command, outcome) = outside.lock().command(id)?;
        match outcome {
            Ok(EndKind::Finished) => return Some(planned_end(command.behaviour)),
            Ok(EndKind::Stopped) => return Some(CallEnd::new(CallStatus::Stopped, "stopped")),
            Ok(EndKind::Dropped) => return None,
            Err(left) => {
                let cancelled = async {
                    cancel.cancelled().await;
                    if command.behaviour == ToolBehaviour::IgnoreStop {
                        pending::<()>().await;
                    }
                };
                // About three years: longer than any wait.
                let left = Duration::from_millis(left.min(100_000_000_000));
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(left) => {}
                    () = cancelled => outside.lock().stop(id),
                }
            }
        }
    }
}

/// A running execution. Dropping the guard records its end as `EndKind::Dropped`.
struct ToolExecutionGuard {
    outside: Arc<ExternalWorld>,
    execution: usize,
}

impl ToolExecutionGuard {
    fn finish(self, how: EndKind, end: CallEnd) -> CallEnd {
        self.outside.lock().end_execution(self.execution, how);
        end
    }
}

impl Drop for ToolExecutionGuard {
    fn drop(&mut self) {
        self.outside.lock().end_execution(self.execution, EndKind::Dropped);
    }
}

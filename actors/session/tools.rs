//! The tasks of tool calls: one makes an attempt, the other attaches to an attempt of an earlier incarnation. A
//! delegating call has no task: its subagents do the work. `tool_executor` admits and prepares calls; `output.rs`
//! shortens results.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    model::{AttemptId, CallEnd, CallId, CallStatus, RunId, RunSpec, SessionId, ToolClass},
    port::{
        ArtifactName, AttachOutcome, AttemptArtifacts, Boot, DecisionHooks, Invocation, PreparedCall,
        ProgressReporter, TextRedactor,
    },
    redaction::redact_end,
    session::{
        SessionInternalMsg,
        output::fit_for_view,
        result_hooks::EndedCall,
        stream_publisher::StreamPublisher,
        tasks::{InFlightTask, LostGuard, TaskSpawner, send},
        watchdog,
    },
    tool_executor::{AdmittedCall, RegisteredTool, ToolExecutorHandle, ToolPermit},
    turn::{DelegationMode, Input, Turn},
};

/// The tools and the prepared calls of a session.
#[derive(Debug, Default)]
pub(super) struct CallTools {
    /// The tools of attempts whose ends are not durable yet.
    pub(super) in_use: BTreeMap<AttemptId, Arc<RegisteredTool>>,
    /// The calls of the last answer that have not started.
    pub(super) prepared: BTreeMap<CallId, AdmittedCall>,
}

impl CallTools {
    fn take_prepared(&mut self, call: CallId) -> Option<AdmittedCall> {
        let admitted = self.prepared.remove(&call);
        free_if_empty(&mut self.prepared);
        admitted
    }

    /// The tool of an attempt whose end is durable. Earlier attempts of the call need theirs no longer.
    pub(super) fn release(&mut self, id: AttemptId) -> Option<Arc<RegisteredTool>> {
        let tool = self.in_use.remove(&id);
        self.in_use.retain(|other, _| other.call != id.call);
        free_if_empty(&mut self.in_use);
        tool
    }
}

/// An empty map keeps a node of 11 entries, and each live session has these maps.
fn free_if_empty<K, V>(map: &mut BTreeMap<K, V>) {
    if map.is_empty() {
        *map = BTreeMap::new();
    }
}

/// The data that a task needs for its call.
struct ToolCallTask {
    id: AttemptId,
    name: Arc<str>,
    tool: Option<Arc<RegisteredTool>>,
    /// The call as it was prepared at its admission; `None` if that was another incarnation's, or another attempt has
    /// used it.
    prepared: Option<PreparedCall>,
    /// The arguments as the model wrote them.
    text: Arc<str>,
    spec: Arc<RunSpec>,
    invocation: Invocation,
    executor: Arc<ToolExecutorHandle>,
    redactor: Arc<dyn TextRedactor>,
    hooks: Arc<dyn DecisionHooks>,
    session: SessionId,
    span: tracing::Span,
}

impl TaskSpawner {
    /// Makes the attempt of a tool call that is recorded as started.
    pub(super) fn run_tool(
        &self,
        turn: &Turn,
        tools: &mut CallTools,
        id: AttemptId,
        permit: ToolPermit,
    ) -> InFlightTask {
        let cancel = CancellationToken::new();
        let guard = LostGuard::new(self.session.clone(), id);
        let Some(mut call_task) = self.tool_call_task(turn, tools, id, cancel.clone()) else {
            return InFlightTask::Call(cancel);
        };
        let span = call_task.span.clone();
        let permit = permit.for_call(Arc::clone(&call_task.name));
        let task = async move {
            let result = AssertUnwindSafe(call_task.execute()).catch_unwind().await;
            let outcome = if let Ok(end) = result {
                permit.end_call();
                AttachOutcome::Ended(end)
            } else {
                // After a panic the work that it began may continue without it.
                drop(permit);
                call_task.attach(Boot::Same).await
            };
            guard.complete(SessionInternalMsg::Input(call_task.into_input(outcome).await));
        };
        self.tasks.spawn(task.instrument(span));
        InFlightTask::Call(cancel)
    }

    /// Brings an attempt of an earlier incarnation to its end.
    pub(super) fn end_tool(&self, turn: &Turn, tools: &mut CallTools, id: AttemptId) -> InFlightTask {
        let cancel = CancellationToken::new();
        cancel.cancel();
        self.attach_tool(turn, tools, id, cancel)
    }

    /// Finds out how an attempt of an earlier incarnation ended.
    pub(super) fn attach_tool(
        &self,
        turn: &Turn,
        tools: &mut CallTools,
        id: AttemptId,
        cancel: CancellationToken,
    ) -> InFlightTask {
        let guard = LostGuard::new(self.session.clone(), id);
        let Some(mut call_task) = self.tool_call_task(turn, tools, id, cancel.clone()) else {
            return InFlightTask::Call(cancel);
        };
        let executor = Arc::clone(&self.parts.executor);
        let class = turn.tool_class(id.call).unwrap_or(ToolClass::Processes);
        let (boot, detached, span) =
            (turn.boot_of(id.call), turn.is_detached(id.call), call_task.span.clone());
        let task = async move {
            tracing::debug!(?boot, "taken up again");
            let outcome = match detached {
                true => with_permit(&executor, (id.call.run, class), call_task.attach(boot)).await,
                false => AttachOutcome::Unknown,
            };
            guard.complete(SessionInternalMsg::Input(call_task.into_input(outcome).await));
        };
        self.tasks.spawn(task.instrument(span));
        InFlightTask::Call(cancel)
    }

    /// A delegating call ends with the results of its subagents, or at once if they run in the background.
    pub(super) fn delegate(&self, id: AttemptId, mode: DelegationMode) -> InFlightTask {
        if let DelegationMode::Background(end) = mode {
            send(&self.session, SessionInternalMsg::Input(Input::ToolEnded { id, end }));
        }
        InFlightTask::Call(CancellationToken::new())
    }

    fn tool_call_task(
        &self,
        turn: &Turn,
        tools: &mut CallTools,
        id: AttemptId,
        cancel: CancellationToken,
    ) -> Option<ToolCallTask> {
        let AttemptId { call, attempt } = id;
        let (name, text, spec) = turn.tool_call(call)?;
        let artifact_name = ArtifactName { session: self.id, call, attempt };
        let executor = Arc::clone(&self.parts.executor);
        let artifacts = AttemptArtifacts::new(Arc::clone(&executor.artifacts), artifact_name)
            .with_hashes(turn.artifact_hashes())
            .with_redactor(&self.parts.redactor);
        let invocation = Invocation {
            call,
            attempt,
            spec: Arc::clone(spec),
            isolation_key: spec.isolation_key.as_str().into(),
            workspace: spec.workspace.as_str().into(),
            now: self.parts.clock.at(),
            artifacts,
            cancel,
            progress: self.progress_reporter(id),
        };
        let span = tracing::info_span!(
            "tool_call",
            session = %self.id,
            run = %call.run,
            call = %call,
            attempt,
            tool = %name,
        );
        let tool = executor.tools().get(&name).cloned();
        let admitted = tools.take_prepared(call);
        let prepared = tool.as_ref().zip(admitted).and_then(|(tool, admitted)| admitted.prepared_by(tool));
        tools.in_use.extend(tool.clone().map(|tool| (id, tool)));
        Some(ToolCallTask {
            id,
            name,
            tool,
            prepared,
            text: text.into(),
            spec: Arc::clone(spec),
            invocation,
            executor,
            redactor: Arc::clone(&self.parts.redactor),
            hooks: Arc::clone(&self.parts.hooks),
            session: self.id,
            span,
        })
    }

    fn progress_reporter(&self, id: AttemptId) -> ProgressReporter {
        let publisher = StreamPublisher::new(&self.parts, self.id, id);
        ProgressReporter::new(move |note| publisher.progress(note))
    }
}

impl ToolCallTask {
    /// The prepared call, or its end if there is none.
    async fn prepare(&mut self) -> Result<PreparedCall, CallEnd> {
        match (&self.tool, self.prepared.take()) {
            (Some(_), Some(call)) => Ok(call),
            (Some(tool), None) => tool.prepare_call(&self.text, &self.spec, &self.invocation.cancel).await,
            (None, _) => {
                let error = format!("the tool `{}` is not there any more", self.name);
                Err(CallEnd::error(CallStatus::Error, &error, None, "try another way"))
            }
        }
    }

    async fn execute(&mut self) -> CallEnd {
        let call = match self.prepare().await {
            Ok(call) => call,
            Err(end) => return end,
        };
        let limit = call.limit;
        let run = watchdog::run_tool(call, self.invocation.clone());
        self.executor.with_limit(self.id, limit, run).await
    }

    /// Asks the tool how an earlier attempt ended. `Unknown` if the tool panics or is missing, or if it does not accept
    /// the arguments any more: an earlier version did, so the call may have begun.
    async fn attach(&mut self, boot: Boot) -> AttachOutcome {
        let outcome = async {
            let call = self.prepare().await.ok()?;
            let limit = call.limit;
            let outcome = watchdog::attach(call, self.invocation.clone(), boot);
            Some(self.executor.with_limit(self.id, limit, outcome).await)
        };
        let outcome = AssertUnwindSafe(outcome).catch_unwind().await;
        outcome.ok().flatten().unwrap_or(AttachOutcome::Unknown)
    }

    /// The input for the session.
    async fn into_input(self, outcome: AttachOutcome) -> Input {
        let id = self.id;
        match outcome {
            // The tool does not know whether the call took effect.
            AttachOutcome::Ended(end) if end.status == CallStatus::InDoubt => Input::Lost(id),
            AttachOutcome::Ended(mut end) => {
                // First, so that no cut leaves a part of a secret.
                redact_end(&mut end, &*self.redactor);
                let Self { name, text, spec, invocation, redactor, hooks, session, .. } = self;
                let end = fit_for_view(end, &invocation.artifacts, &invocation.cancel).await;
                let ended = EndedCall { session, id, tool: name, arguments: text, spec };
                let end = Box::pin(ended.with_hooks(end, &*hooks, &*redactor, &invocation.cancel)).await;
                tracing::debug!(status = ?end.status, "ended");
                Input::ToolEnded { id, end }
            }
            AttachOutcome::NeverStarted => Input::NeverStarted(id),
            AttachOutcome::Unknown => Input::Lost(id),
        }
    }
}

/// Awaits a call that is already running. It does not wait for a permit, but takes one as soon as possible, before
/// calls that have not started.
async fn with_permit<T>(
    executor: &ToolExecutorHandle,
    (run, class): (RunId, ToolClass),
    call: impl Future<Output = T>,
) -> T {
    let held = async {
        let _permit = executor.permit(run, class, true).await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        biased;
        done = call => done,
        never = held => match never {},
    }
}

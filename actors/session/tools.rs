//! The tasks of tool calls: one makes an attempt, the other attaches to an attempt of an earlier incarnation. A
//! delegating call has no task: its subagents do the work.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    hub::DeltaBody,
    model::{Attempt, AttemptId, CallEnd, CallId, CallStatus, RunId, ToolClass},
    policy::parse_arguments,
    port::{ArtifactName, AttachOutcome, AttemptArtifacts, Boot, Invocation, ProgressReporter},
    session::{
        SessionInternalMsg,
        output::fit_for_view,
        stream_publisher::StreamPublisher,
        tasks::{InFlightTask, LostGuard, TaskSpawner, send},
        watchdog,
    },
    tool_executor::{MAX_INLINE_PARSE_BYTES, RegisteredTool, ToolExecutorHandle, ToolPermit},
    turn::{DelegationMode, Input, Turn},
};

/// The tools of attempts whose ends are not durable yet.
pub(super) type ToolsInUse = BTreeMap<AttemptId, Arc<RegisteredTool>>;

/// The data that a task needs for its call.
struct ToolCallTask {
    id: AttemptId,
    name: Arc<str>,
    tool: Option<Arc<RegisteredTool>>,
    /// The arguments as the model wrote them.
    text: String,
    /// The arguments in it are null until `parse_arguments`.
    invocation: Invocation,
    /// Why the arguments cannot be parsed.
    arguments_error: Option<String>,
    shelf: AttemptArtifacts,
    cancel: CancellationToken,
    span: tracing::Span,
}

impl TaskSpawner {
    /// Makes the attempt of a tool call that is recorded as started.
    pub(super) fn run_tool(
        &self,
        turn: &Turn,
        in_use: &mut ToolsInUse,
        id: AttemptId,
        permit: ToolPermit,
    ) -> InFlightTask {
        let cancel = CancellationToken::new();
        let guard = LostGuard::new(self.session.clone(), id);
        let Some(mut called) = self.tool_call_task(turn, in_use, id, cancel.clone()) else {
            return InFlightTask::Call(cancel);
        };
        let span = called.span.clone();
        let permit = permit.begin(Arc::clone(&called.name));
        let task = async move {
            called.parse_arguments().await;
            let made = AssertUnwindSafe(called.execute()).catch_unwind().await;
            let found = if let Ok(end) = made {
                permit.finish();
                AttachOutcome::Ended(end)
            } else {
                // After a panic the work that it began may continue without it.
                drop(permit);
                called.attach(Boot::Same).await
            };
            guard.complete(called.to_input(found).await);
        };
        self.tasks.spawn(task.instrument(span));
        InFlightTask::Call(cancel)
    }

    /// Finds out how an attempt of an earlier incarnation ended.
    pub(super) fn attach_tool(
        &self,
        turn: &Turn,
        in_use: &mut ToolsInUse,
        id: AttemptId,
        cancel: CancellationToken,
    ) -> InFlightTask {
        let guard = LostGuard::new(self.session.clone(), id);
        let Some(mut called) = self.tool_call_task(turn, in_use, id, cancel.clone()) else {
            return InFlightTask::Call(cancel);
        };
        let executor = Arc::clone(&self.wiring.executor);
        let class = turn.tool_class(id.call).unwrap_or(ToolClass::Processes);
        let (boot, detached, span) = (turn.boot_of(id.call), turn.is_detached(id.call), called.span.clone());
        let task = async move {
            tracing::debug!(?boot, "taken up again");
            called.parse_arguments().await;
            let found = match detached {
                true => with_permit(&executor, (id.call.run, class), called.attach(boot)).await,
                false => AttachOutcome::Unknown,
            };
            guard.complete(called.to_input(found).await);
        };
        self.tasks.spawn(task.instrument(span));
        InFlightTask::Call(cancel)
    }

    /// A delegating call ends with the results of its subagents, or at once if they run in the background.
    pub(super) fn delegate(
        &self,
        AttemptId { call, attempt }: AttemptId,
        ground: DelegationMode,
    ) -> InFlightTask {
        if let DelegationMode::Background(end) = ground {
            send(
                &self.session,
                SessionInternalMsg::Input(Input::ToolEnded { id: AttemptId { call, attempt }, end }),
            );
        }
        InFlightTask::Call(CancellationToken::new())
    }

    fn tool_call_task(
        &self,
        turn: &Turn,
        in_use: &mut ToolsInUse,
        AttemptId { call, attempt }: AttemptId,
        cancel: CancellationToken,
    ) -> Option<ToolCallTask> {
        let (name, text, spec) = turn.tool_call(call)?;
        let own = ArtifactName { session: self.id, call, attempt };
        let shelf = AttemptArtifacts::new(Arc::clone(&self.wiring.executor.artifacts), own)
            .with_hashes(turn.artifact_hashes());
        let invocation = Invocation {
            call,
            attempt,
            isolation_key: spec.isolation_key.as_str().into(),
            workspace: spec.workspace.as_str().into(),
            arguments: Value::Null,
            now: self.wiring.clock.at(),
            artifacts: shelf.clone(),
            cancel: cancel.clone(),
            progress: self.progress_reporter(call, attempt),
        };
        let span = tracing::info_span!(
            "tool_call",
            session = %self.id,
            run = %call.run,
            call = %call,
            attempt,
            tool = %name,
        );
        let tool = self.wiring.executor.tools().get(&name).cloned();
        in_use.extend(tool.clone().map(|tool| (AttemptId { call, attempt }, tool)));
        let (text, unreadable) = (text.to_owned(), None);
        Some(ToolCallTask {
            id: AttemptId { call, attempt },
            name,
            tool,
            text,
            invocation,
            arguments_error: unreadable,
            shelf,
            cancel,
            span,
        })
    }

    fn progress_reporter(&self, call: CallId, attempt: Attempt) -> ProgressReporter {
        let published = StreamPublisher::new(&self.wiring.hub, self.id, AttemptId { call, attempt });
        ProgressReporter::new(move |note| published.publish(|| DeltaBody::Progress(note.into())))
    }
}

impl ToolCallTask {
    /// Parses the arguments, of which the records have only the text. Long ones are parsed on a blocking thread, which
    /// delays no session.
    async fn parse_arguments(&mut self) {
        let text = std::mem::take(&mut self.text);
        let read = match text.len() <= MAX_INLINE_PARSE_BYTES {
            true => parse_arguments(&text),
            false => match spawn_blocking(move || parse_arguments(&text)).await {
                Ok(read) => read,
                Err(error) => {
                    self.arguments_error = Some(format!("the arguments could not be read: {error}"));
                    return;
                }
            },
        };
        match read {
            Ok(arguments) => self.invocation.arguments = arguments,
            Err(error) => self.arguments_error = Some(error.to_string()),
        }
    }

    async fn execute(&self) -> CallEnd {
        match (&self.tool, &self.arguments_error) {
            (Some(tool), None) => watchdog::run_tool(&***tool, self.invocation.clone()).await,
            (None, _) => {
                let error = format!("the tool `{}` is not there any more", self.name);
                CallEnd::error(CallStatus::Error, &error, None, "try another way")
            }
            (_, Some(error)) => CallEnd::error(CallStatus::Error, error, None, "send one JSON object"),
        }
    }

    /// Asks the tool how an earlier attempt ended. `Unknown` if the tool panics or is missing, or if the arguments are
    /// invalid.
    async fn attach(&self, boot: Boot) -> AttachOutcome {
        let (Some(tool), None) = (&self.tool, &self.arguments_error) else { return AttachOutcome::Unknown };
        let found = watchdog::attach(&***tool, self.invocation.clone(), boot);
        AssertUnwindSafe(found).catch_unwind().await.unwrap_or(AttachOutcome::Unknown)
    }

    /// The input for the session.
    async fn to_input(&self, found: AttachOutcome) -> Input {
        let AttemptId { call, attempt } = self.id;
        match found {
            // The tool does not know whether the call took effect.
            AttachOutcome::Ended(end) if end.status == CallStatus::InDoubt => {
                Input::Lost(AttemptId { call, attempt })
            }
            AttachOutcome::Ended(end) => {
                let end = fit_for_view(end, &self.shelf, &self.cancel).await;
                tracing::debug!(status = ?end.status, "ended");
                Input::ToolEnded { id: AttemptId { call, attempt }, end }
            }
            AttachOutcome::NeverStarted => Input::NeverBegun(AttemptId { call, attempt }),
            AttachOutcome::Unknown => Input::Lost(AttemptId { call, attempt }),
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

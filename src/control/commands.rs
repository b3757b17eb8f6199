//! Commands of clients: stop, steer, decide, raise, and those to providers. The runtime of this process executes them,
//! once it is attached to the [`RuntimeSlot`]. `host/client_commands.rs` sends them.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use futures::future::join_all;
use hermod_actors::{
    HealthProbe, RunError, Runtime,
    model::{LimitIncrease, PersonAnswer, RunId, RunRow, RunState, SessionId, StopReason, StoreLimits},
};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    approvals::ApprovalWriter,
    error::RequestError,
    protocol::ControlResponse,
    reader::StoreReader,
    service_control::ServiceControl,
    submission::{OwnerKind, SubmissionService},
    tree::run_view,
};
use crate::view::{ApprovalView, DecisionView, RunView};

/// How long a stopped run may take to end before its current row is reported.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of started commands when this process ends: it must exit within a second of a signal.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// The runtime of this process, as far as commands of clients need it.
#[derive(Debug)]
pub struct RuntimeSlot {
    kind: OwnerKind,
    runtime: watch::Sender<Weak<Runtime>>,
    submissions: OnceLock<Weak<dyn SubmissionService>>,
    /// Set in a service only.
    service: watch::Sender<Option<Weak<dyn ServiceControl>>>,
    /// Each command under way has a receiver.
    under_way: watch::Sender<()>,
    closed: CancellationToken,
}

impl RuntimeSlot {
    /// An empty slot of a process that will take submissions for as long as `kind` says.
    pub fn new(kind: OwnerKind) -> Self {
        Self {
            kind,
            runtime: watch::Sender::default(),
            submissions: OnceLock::new(),
            service: watch::Sender::default(),
            under_way: watch::Sender::default(),
            closed: CancellationToken::new(),
        }
    }

    /// Attaches the runtime; it executes the commands that wait for it, and all further ones. Submissions go to
    /// `submissions`.
    pub fn attach(&self, runtime: &Arc<Runtime>, submissions: &Arc<dyn SubmissionService>) {
        self.submissions.get_or_init(|| Arc::downgrade(submissions));
        self.runtime.send_replace(Arc::downgrade(runtime));
    }

    /// Attaches the service of this process.
    pub fn attach_service(&self, service: &Arc<dyn ServiceControl>) {
        self.service.send_replace(Some(Arc::downgrade(service)));
    }

    /// Executes a request to the service, once it is attached; `None` if the slot is closed before it is done.
    pub(super) async fn operate<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        request: impl FnOnce(Arc<dyn ServiceControl>) -> F,
    ) -> Result<Option<T>, RequestError> {
        if !self.kind.is_service() {
            return Err(RequestError::usage(format!(
                "process {} holds the store and is no service: it ends with its own work",
                std::process::id()
            )));
        }
        let _under_way = self.under_way.subscribe();
        let mut services = self.service.subscribe();
        let done = async {
            let service = services.wait_for(Option::is_some).await.ok()?.as_ref()?.upgrade()?;
            Some(request(service).await)
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Ok(None),
            done = done => done.transpose(),
        }
    }

    /// How long this process takes submissions.
    pub(super) const fn kind(&self) -> OwnerKind {
        self.kind
    }

    /// The runtime and what takes submissions, once they are attached; `None` if they have ended.
    pub(super) async fn attached(&self) -> Option<(Arc<Runtime>, Arc<dyn SubmissionService>)> {
        let mut runtimes = self.runtime.subscribe();
        let runtime = runtimes.wait_for(|runtime| runtime.strong_count() > 0).await.ok()?.upgrade()?;
        Some((runtime, self.submissions.get()?.upgrade()?))
    }

    /// Resolves when the slot is closed.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Lets the commands under way finish within `DRAIN_TIMEOUT`, then closes the slot.
    pub async fn drain(&self) {
        if timeout(DRAIN_TIMEOUT, self.under_way.closed()).await.is_err() {
            tracing::warn!("a command is left without its answer");
        }
        self.close();
    }

    /// Drops all commands unanswered; their clients ask the next owner of the store, or open it themselves.
    pub fn close(&self) {
        self.closed.cancel();
    }

    /// The health of the runtime, if one is attached and has not ended.
    pub(super) fn health(&self) -> Option<HealthProbe> {
        Some(self.runtime.borrow().upgrade()?.health_probe())
    }

    /// The limits of all runs together, if a runtime is attached and has not ended.
    pub(super) fn store_limits(&self) -> Option<StoreLimits> {
        Some(self.runtime.borrow().upgrade()?.store_limits())
    }

    /// Executes a command once a runtime is attached; `None` if the slot is closed before the command is done.
    pub(super) async fn execute<F: Future>(
        &self,
        command: impl FnOnce(Arc<Runtime>) -> F,
    ) -> Option<F::Output> {
        self.execute_with(|runtime, _| command(runtime)).await
    }

    /// Executes a command like [`Self::execute`]; it gets what takes submissions too.
    pub(super) async fn execute_with<F: Future>(
        &self,
        command: impl FnOnce(Arc<Runtime>, Arc<dyn SubmissionService>) -> F,
    ) -> Option<F::Output> {
        let _under_way = self.under_way.subscribe();
        let done = async {
            let (runtime, submissions) = self.attached().await?;
            Some(command(runtime, submissions).await)
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            done = done => done,
        }
    }
}

/// Stops runs, and returns them as they are then.
pub(super) async fn stop_runs(
    runtime: Arc<Runtime>,
    rows: Vec<RunRow>,
    reason: StopReason,
) -> Result<ControlResponse, RequestError> {
    let rows = stop_for(&runtime, rows, reason).await?;
    Ok(ControlResponse::Stopped(rows.into_iter().map(RunView::from).collect()))
}

/// Stops runs, also those that no process runs, all sessions concurrently. Returns their rows.
pub async fn stop(runtime: &Runtime, rows: Vec<RunRow>) -> Result<Vec<RunRow>, RunError> {
    stop_for(runtime, rows, StopReason::Command).await
}

async fn stop_for(runtime: &Runtime, rows: Vec<RunRow>, reason: StopReason) -> Result<Vec<RunRow>, RunError> {
    let mut sessions: BTreeMap<SessionId, Vec<RunRow>> = BTreeMap::new();
    for row in rows {
        sessions.entry(row.session).or_default().push(row);
    }
    let mut stopped = Vec::new();
    // All sessions are stopped before the first error is returned.
    for rows in join_all(sessions.into_values().map(|rows| stop_session(runtime, rows, reason))).await {
        stopped.extend(rows?);
    }
    stopped.sort_by_key(|row| row.id);
    Ok(stopped)
}

/// Stops runs of one session, without resuming any.
async fn stop_session(
    runtime: &Runtime,
    mut rows: Vec<RunRow>,
    reason: StopReason,
) -> Result<Vec<RunRow>, RunError> {
    // Later runs are stopped first, so that no queued run starts.
    for row in rows.iter().rev() {
        runtime.stop_without_resume(row.id, reason).await?;
    }
    for row in &mut rows {
        *row = runtime.row(row.id).await?;
        if row.state == RunState::Ended {
            continue;
        }
        match runtime.wait(row.id, Some(STOP_TIMEOUT)).await {
            Ok(_) | Err(RunError::WaitTimedOut(_)) => *row = runtime.row(row.id).await?,
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

/// Steers a run of this process. If its session is not in progress here, a service lets it go on first. A command rejects
/// that: it may have no provider for the run, and ends with its own work.
pub(super) async fn steer(
    (runtime, submissions): (Arc<Runtime>, Arc<dyn SubmissionService>),
    kind: OwnerKind,
    run: RunRow,
    text: String,
) -> Result<ControlResponse, RequestError> {
    let is_asleep = run.ended.is_none() && !runtime.health_probe().runs(run.session).await;
    if is_asleep && kind.is_service() {
        submissions.revive(run.session).await?;
    } else if is_asleep {
        return Err(RequestError::usage(format!(
            "run {0} is not under way: process {1} has another conversation. When that has ended, `hermod run --resume \
             {0}` goes on with it",
            run.id,
            std::process::id()
        )));
    }
    Ok(ControlResponse::Steered(runtime.steer(run.id, text).await?))
}

/// Decides about a call that waits for a person, without resuming a run that no process runs.
pub(super) async fn decide(
    runtime: Arc<Runtime>,
    (writer, reader): (&ApprovalWriter, &StoreReader),
    approval: &ApprovalView,
    answer: &PersonAnswer,
) -> Result<DecisionView, RequestError> {
    let row = writer.answer(&runtime, reader, approval, answer).await?;
    let run = run_view(row, Some(&runtime.health_probe())).await;
    Ok(DecisionView::new(approval.call, answer, run))
}

/// Raises limits of a run. The command alone does not resume the run.
pub(super) async fn raise(
    runtime: Arc<Runtime>,
    run: RunId,
    by: LimitIncrease,
) -> Result<ControlResponse, RequestError> {
    let row = runtime.raise_without_resume(run, by).await?;
    Ok(ControlResponse::Raised(Box::new(row.into())))
}

/// The availability of the models of each provider.
pub(super) async fn providers(runtime: Arc<Runtime>) -> Result<ControlResponse, RequestError> {
    Ok(ControlResponse::Providers(runtime.providers().await))
}

/// The summary calls under way, and the statistics of summarisers.
pub(super) async fn summaries(runtime: Arc<Runtime>) -> Result<ControlResponse, RequestError> {
    let unanswered = "the Compressor was restarted before it answered; ask again";
    let status = runtime.compressor_status().await.map(ControlResponse::Summaries);
    status.ok_or_else(|| RequestError::internal(unanswered))
}

/// Forgets every failure of a provider.
pub(super) async fn reset_provider(
    runtime: Arc<Runtime>,
    name: String,
) -> Result<ControlResponse, RequestError> {
    if runtime.reset_provider(&name) {
        return Ok(ControlResponse::Reset { name });
    }
    let known: Vec<String> = runtime.providers().await.into_iter().map(|provider| provider.name).collect();
    let pid = std::process::id();
    Err(RequestError::usage(format!(
        "process {pid} asks no provider `{name}`; it asks: {}",
        known.join(", ")
    )))
}

//! The owner's side of commands of other processes: executes those that `control/handler.rs` queues, until the work of
//! this process is done. A watchdog reports message handlers that do not return meanwhile. `client_commands.rs` is the
//! side of the sender.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use hermod_actors::{
    RunError, Runtime,
    model::{ApprovalDecision, CallId, RunRow, RunState, SessionId, StopReason},
};
use tokio::time::timeout;

use super::notes::NoteSink;
use crate::{
    control::{
        CommandReceiver, ControlCommand, ControlResponse, PendingCommand, RequestError, RequestErrorKind,
        run_view,
    },
    view::{DecisionView, RunView, SteeredView},
    watchdog::HandlerWatchdog,
};

/// How long a stopped run may take to end before its current row is reported.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of started commands when this process ends: it must exit within a second of a signal.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// Executes commands while `work` is pending, then lets the started ones finish within `DRAIN_TIMEOUT`.
pub async fn serve_commands<T>(
    runtime: &Runtime,
    commands: &mut CommandReceiver,
    notes: &Arc<dyn NoteSink>,
    work: impl Future<Output = T>,
) -> T {
    commands.attach_runtime(runtime);
    let _watchdog = {
        let notes = Arc::clone(notes);
        HandlerWatchdog::start(runtime.health_probe(), move |line| notes.note(&line))
    };
    let mut started = FuturesUnordered::new();
    let mut work = pin!(work);
    let result = loop {
        tokio::select! {
            biased;
            result = &mut work => break result,
            Some(()) = started.next(), if !started.is_empty() => {}
            Some(pending) = commands.recv() => started.push(execute_command(runtime, pending)),
        }
    };
    commands.close();
    let drained = async { while started.next().await.is_some() {} };
    if timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::warn!("an order is left without its answer");
    }
    result
}

async fn execute_command(runtime: &Runtime, PendingCommand { command, reply }: PendingCommand) {
    let response = match command {
        ControlCommand::Stop(rows) => stop(runtime, rows)
            .await
            .map(|rows| ControlResponse::Stopped(rows.into_iter().map(RunView::from).collect()))
            .map_err(RequestError::from),
        ControlCommand::Steer { run, text } => steer(runtime, &run, text).await,
        ControlCommand::Decide { call, verdict } => decide(runtime, call, verdict).await,
        // The command alone does not resume a run.
        ControlCommand::Raise { run, by } => runtime
            .raise_without_resume(run, by)
            .await
            .map(|row| ControlResponse::Raised(Box::new(row.into())))
            .map_err(RequestError::from),
        ControlCommand::Providers => Ok(ControlResponse::Providers(runtime.providers().await)),
        ControlCommand::ResetProvider(name) => reset(runtime, name).await,
        ControlCommand::Summaries => {
            let unanswered = "the Compressor was restarted before it answered; ask again";
            let status = runtime.compressor_status().await;
            status
                .map(ControlResponse::Summaries)
                .ok_or_else(|| RequestError::new(RequestErrorKind::Internal, unanswered))
        }
    };
    if reply.send(response.unwrap_or_else(ControlResponse::Refused)).is_err() {
        tracing::debug!("the client of a command has disconnected");
    }
}

/// Stops runs, also those that no process runs, all sessions concurrently. Returns their rows.
pub async fn stop(runtime: &Runtime, rows: Vec<RunRow>) -> Result<Vec<RunRow>, RunError> {
    let mut sessions: BTreeMap<SessionId, Vec<RunRow>> = BTreeMap::new();
    for row in rows {
        sessions.entry(row.session).or_default().push(row);
    }
    let mut stopped = Vec::new();
    // All sessions are stopped before the first error is returned.
    for rows in join_all(sessions.into_values().map(|rows| stop_session(runtime, rows))).await {
        stopped.extend(rows?);
    }
    stopped.sort_by_key(|row| row.id);
    Ok(stopped)
}

/// Stops runs of one session, without resuming any.
async fn stop_session(runtime: &Runtime, mut rows: Vec<RunRow>) -> Result<Vec<RunRow>, RunError> {
    // Later runs are stopped first, so that no queued run starts.
    for row in rows.iter().rev() {
        runtime.stop_without_resume(row.id, StopReason::Command).await?;
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

/// Steers a run of this process. A run whose session is not in progress here is rejected: it may have no provider in
/// this process.
async fn steer(runtime: &Runtime, run: &RunRow, text: Arc<str>) -> Result<ControlResponse, RequestError> {
    if run.ended.is_none() && !runtime.health_probe().runs(run.session).await {
        return Err(RequestError::usage(format!(
            "run {0} is not under way: process {1} has another conversation. When that has ended, `hermod run --resume \
             {0}` goes on with it",
            run.id,
            std::process::id()
        )));
    }
    let steered = runtime.steer(run.id, text).await?;
    Ok(ControlResponse::Steered(SteeredView {
        run: steered.run,
        session: steered.session,
        next: steered.next,
    }))
}

/// Decides about a call in doubt, without resuming a run that no process runs.
async fn decide(
    runtime: &Runtime,
    call: CallId,
    verdict: ApprovalDecision,
) -> Result<ControlResponse, RequestError> {
    let row = runtime.decide_without_resume(call, verdict).await?;
    let run = run_view(row, Some(&runtime.health_probe())).await;
    Ok(ControlResponse::Decided(Box::new(DecisionView { call, verdict, run })))
}

async fn reset(runtime: &Runtime, name: String) -> Result<ControlResponse, RequestError> {
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

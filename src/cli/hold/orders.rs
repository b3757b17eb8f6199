//! What other processes want of the runs of this one.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use hermod_actors::{
    RunError, Runtime,
    model::{CallId, RunRow, RunState, SessionId, StopReason, Verdict},
};
use tokio::time::timeout;

use crate::{
    cli::output::say,
    control::{Answer, Fault, Order, Ordered, Orders, RunStatus},
    watchdog::HandlerWatchdog,
};

/// How long a stopped run may take to its end before it is told as it is.
const ENDING: Duration = Duration::from_secs(5);
/// How long what was begun may take when this process ends: it is to be gone within a second of being told to.
const GRACE: Duration = Duration::from_millis(250);

/// Carries orders out for as long as `following` goes on, and those that are begun to their end.
pub(crate) async fn attend<T>(
    runtime: &Runtime,
    orders: &mut Orders,
    following: impl Future<Output = T>,
) -> T {
    orders.carried_out_by(runtime);
    let _watchdog = HandlerWatchdog::start(runtime.vitals(), say);
    let mut begun = FuturesUnordered::new();
    let mut following = pin!(following);
    let followed = loop {
        tokio::select! {
            biased;
            followed = &mut following => break followed,
            Some(()) = begun.next(), if !begun.is_empty() => {}
            Some(ordered) = orders.recv() => begun.push(carry_out(runtime, ordered)),
        }
    };
    orders.close();
    let rest = async { while begun.next().await.is_some() {} };
    if timeout(GRACE, rest).await.is_err() {
        tracing::warn!("an order is left without its answer");
    }
    followed
}

async fn carry_out(runtime: &Runtime, Ordered { order, reply }: Ordered) {
    let done = match order {
        Order::Stop(rows) => stop(runtime, rows).await.map(Answer::Stopped).map_err(Fault::from),
        Order::Steer { run, text } => steer(runtime, &run, text).await,
        Order::Decide { call, verdict } => decide(runtime, call, verdict).await,
        // What nobody runs is not taken up for that.
        Order::Raise { run, by } => {
            runtime.raise_at_rest(run, by).await.map(Box::new).map(Answer::Raised).map_err(Fault::from)
        }
        Order::Providers => Ok(Answer::Providers(runtime.providers().await)),
        Order::ResetProvider(name) => reset(runtime, name).await,
    };
    if reply.send(done.unwrap_or_else(Answer::Refused)).is_err() {
        tracing::debug!("whoever gave an order has gone");
    }
}

/// Stops runs of this process, and runs that nobody runs: all sessions at the same time. Says what became of them.
pub(crate) async fn stop(runtime: &Runtime, rows: Vec<RunRow>) -> Result<Vec<RunRow>, RunError> {
    let mut sessions: BTreeMap<SessionId, Vec<RunRow>> = BTreeMap::new();
    for row in rows {
        sessions.entry(row.session).or_default().push(row);
    }
    let mut stopped = Vec::new();
    // Nobody's failure leaves another run going.
    for rows in join_all(sessions.into_values().map(|rows| stop_session(runtime, rows))).await {
        stopped.extend(rows?);
    }
    stopped.sort_by_key(|row| row.id);
    Ok(stopped)
}

/// Stops runs of one session. What nobody runs is not taken up for that.
async fn stop_session(runtime: &Runtime, mut rows: Vec<RunRow>) -> Result<Vec<RunRow>, RunError> {
    // What waits behind a run is stopped before it, so that it does not begin.
    for row in rows.iter().rev() {
        runtime.stop_at_rest(row.id, StopReason::Command).await?;
    }
    for row in &mut rows {
        *row = runtime.row(row.id).await?;
        if row.state == RunState::Ended {
            continue;
        }
        match runtime.wait(row.id, Some(ENDING)).await {
            Ok(_) | Err(RunError::StillRunning(_)) => *row = runtime.row(row.id).await?,
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

/// Steers a run of this process. One that is not under way may find no provider here.
async fn steer(runtime: &Runtime, run: &RunRow, text: Arc<str>) -> Result<Answer, Fault> {
    if run.ended.is_none() && !runtime.vitals().runs(run.session).await {
        return Err(Fault::usage(format!(
            "run {0} is not under way: process {1} has another conversation. When that has ended, `hermod run --resume \
             {0}` goes on with it",
            run.id,
            std::process::id()
        )));
    }
    let steered = runtime.steer(run.id, text).await?;
    Ok(Answer::Steered { run: steered.run, session: steered.session, next: steered.next })
}

/// Decides about a call of this process, or of a run that nobody runs, which is not taken up for that.
async fn decide(runtime: &Runtime, call: CallId, verdict: Verdict) -> Result<Answer, Fault> {
    let row = runtime.decide_at_rest(call, verdict).await?;
    let has_process = runtime.vitals().runs(row.session).await;
    let run = if has_process { row.into() } else { RunStatus::at_rest(row) };
    Ok(Answer::Decided { call, run: Box::new(run) })
}

async fn reset(runtime: &Runtime, name: String) -> Result<Answer, Fault> {
    if runtime.reset_provider(&name) {
        return Ok(Answer::Reset { name });
    }
    let known: Vec<String> = runtime.providers().await.into_iter().map(|provider| provider.name).collect();
    let pid = std::process::id();
    Err(Fault::usage(format!("process {pid} asks no provider `{name}`; it asks: {}", known.join(", "))))
}

//! What other processes want of the runs of this one.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use hermod_actors::{
    RunError, Runtime,
    model::{CallId, RunRow, SessionId, StopReason, Verdict},
};
use tokio::time::timeout;

use crate::control::{Answer, Fault, Order, Ordered, Orders};

/// How long a stopped run may take to its end before it is told as it is.
const ENDING: Duration = Duration::from_secs(5);
/// How long what was begun may take when this process ends.
const GRACE: Duration = Duration::from_secs(1);

/// Carries orders out for as long as `following` goes on, and those that are begun to their end.
pub(crate) async fn attend<T>(
    runtime: &Runtime,
    session: SessionId,
    orders: &mut Orders,
    following: impl Future<Output = T>,
) -> T {
    orders.carried_out_by(runtime);
    let mut begun = FuturesUnordered::new();
    let mut following = pin!(following);
    let followed = loop {
        tokio::select! {
            biased;
            followed = &mut following => break followed,
            Some(()) = begun.next(), if !begun.is_empty() => {}
            Some(ordered) = orders.recv() => begun.push(carry_out(runtime, session, ordered)),
        }
    };
    orders.close();
    let rest = async { while begun.next().await.is_some() {} };
    if timeout(GRACE, rest).await.is_err() {
        tracing::warn!("an order is left without its answer");
    }
    followed
}

async fn carry_out(runtime: &Runtime, session: SessionId, Ordered { order, reply }: Ordered) {
    let done = match order {
        Order::Stop(rows) => stop(runtime, session, rows).await,
        Order::Steer { run, text } => steer(runtime, session, &run, text).await,
        Order::Decide { run, call, verdict } => decide(runtime, session, (&run, call), verdict).await,
        Order::Providers => Ok(Answer::Providers(runtime.providers().await)),
        Order::ResetProvider(name) => reset(runtime, name).await,
    };
    if reply.send(done.unwrap_or_else(Answer::Refused)).is_err() {
        tracing::debug!("whoever gave an order has gone");
    }
}

/// Stops runs of this process, and runs that nobody runs.
async fn stop(runtime: &Runtime, session: SessionId, rows: Vec<RunRow>) -> Result<Answer, Fault> {
    let (own, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.session == session);
    let mut stopped = Vec::new();
    for row in others {
        runtime.stop_at_rest(row.id, StopReason::Command).await?;
        stopped.push(runtime.row(row.id).await?);
    }
    // What waits behind a run is stopped before it, so that it does not begin.
    for row in own.iter().rev() {
        runtime.stop(row.id, StopReason::Command).await?;
    }
    for row in own {
        match runtime.wait(row.id, Some(ENDING)).await {
            Ok(_) | Err(RunError::StillRunning(_)) => stopped.push(runtime.row(row.id).await?),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Answer::Stopped(stopped))
}

/// Steers a run of this process. One of another conversation is not under way, and would find no provider here.
async fn steer(runtime: &Runtime, session: SessionId, run: &RunRow, text: Arc<str>) -> Result<Answer, Fault> {
    if run.session != session && run.ended.is_none() {
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

/// Decides about a call of this process, or of a run that nobody runs.
async fn decide(
    runtime: &Runtime,
    session: SessionId,
    (run, call): (&RunRow, CallId),
    verdict: Verdict,
) -> Result<Answer, Fault> {
    let decided = if run.session == session {
        runtime.decide(call, verdict).await
    } else {
        runtime.decide_at_rest(call, verdict).await
    };
    Ok(Answer::Decided { call, run: Box::new(decided?) })
}

async fn reset(runtime: &Runtime, name: String) -> Result<Answer, Fault> {
    if runtime.reset_provider(&name) {
        return Ok(Answer::Reset { name });
    }
    let known: Vec<String> = runtime.providers().await.into_iter().map(|provider| provider.name).collect();
    let pid = std::process::id();
    Err(Fault::usage(format!("process {pid} asks no provider `{name}`; it asks: {}", known.join(", "))))
}

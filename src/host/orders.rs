//! Commands about stored runs: this process sends them to the owner of the store, or executes them itself if there is
//! no owner. None resumes a run that no process runs. `commands.rs` is the owner's side.

use std::{path::Path, sync::Arc};

use hermod_actors::{
    model::{ApprovalDecision, LimitIncrease, RunRow, RunState},
    port::Journal,
};
use tokio::time::sleep;

use super::{
    commands,
    error::HostError,
    start::{RuntimeHost, ShutdownUrgency, start_write_only},
    store_client::{RETRY_DELAY, StoreAccess, StoreClient, unexpected_response},
};
use crate::{
    control::{AskError, ControlRequest, ControlResponse, RequestError, StoreReader},
    process::runner::{OWN_PROGRAM, Runner},
    view::{DecisionView, RunView},
};

/// The runs to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopTarget {
    /// This run.
    Run(String),
    /// The root of the tree to which this run belongs.
    Tree(String),
    /// Every unfinished run.
    All,
}

impl StopTarget {
    fn request(&self) -> ControlRequest {
        match self {
            Self::Run(run) => ControlRequest::Stop { run: run.clone(), tree: false },
            Self::Tree(run) => ControlRequest::Stop { run: run.clone(), tree: true },
            Self::All => ControlRequest::StopAll {},
        }
    }

    async fn rows(&self, reader: &StoreReader) -> Result<Vec<RunRow>, RequestError> {
        match self {
            Self::Run(run) => Ok(vec![reader.run(run).await?]),
            Self::Tree(run) => Ok(vec![reader.root(run).await?]),
            Self::All => reader.read(|rows| rows.open_runs()).await,
        }
    }
}

impl StoreClient {
    /// Stops runs durably, and returns them as they are then.
    pub async fn stop(&self, target: &StopTarget) -> Result<Vec<RunView>, HostError> {
        let request = target.request();
        loop {
            match self.access().await? {
                StoreAccess::Owner(mut client) => match client.request(&request, |_| Ok(())).await {
                    Ok(ControlResponse::Stopped(runs)) => return Ok(runs),
                    Ok(_) => return Err(unexpected_response().into()),
                    // Stopping is idempotent, so the request can be repeated.
                    Err(AskError::Disconnected) => sleep(RETRY_DELAY).await,
                    Err(AskError::Rejected(error)) => return Err(error.into()),
                },
                StoreAccess::Store(journal) => {
                    return stop_without_owner(target, journal, self.state()).await;
                }
            }
        }
    }

    /// Answers the pending approval of a call; `call` may be a run with only one.
    pub async fn decide(&self, call: &str, verdict: ApprovalDecision) -> Result<DecisionView, HostError> {
        let request = ControlRequest::ApprovalsDecide { call: call.to_owned(), verdict };
        let remedy = "`hermod approvals list` shows whether the question is still open";
        let journal = match self.order(&request, remedy).await? {
            Ordered::Done(ControlResponse::Decided(decision)) => return Ok(*decision),
            Ordered::Done(_) => return Err(unexpected_response().into()),
            Ordered::NoOwner(journal) => journal,
        };
        let (_, call) = StoreReader::new(Arc::clone(&journal)).find_approval(call).await?;
        let host = start_write_only(journal, self.state()).await?;
        let decided = host.runtime.decide_without_resume(call, verdict).await;
        host.suspend(ShutdownUrgency::Normal).await;
        Ok(DecisionView { call, verdict, run: RunView::without_process(decided?) })
    }

    /// Raises limits of a run.
    pub async fn raise(&self, run: &str, by: LimitIncrease) -> Result<RunView, HostError> {
        let request = ControlRequest::BudgetAdd { run: run.to_owned(), by };
        // The request is not repeated, since the limits could be raised twice.
        let remedy = "`hermod budget show` shows whether the limits are raised";
        let journal = match self.order(&request, remedy).await? {
            Ordered::Done(ControlResponse::Raised(run)) => return Ok(*run),
            Ordered::Done(_) => return Err(unexpected_response().into()),
            Ordered::NoOwner(journal) => journal,
        };
        let row = StoreReader::new(Arc::clone(&journal)).run(run).await?;
        let host = start_write_only(journal, self.state()).await?;
        let raised = host.runtime.raise_without_resume(row.id, by).await;
        host.suspend(ShutdownUrgency::Normal).await;
        Ok(RunView::from(raised?))
    }

    /// Sends a steering message. Without an owner it is refused, and the error says how to resume the run.
    pub async fn steer(&self, run: String, text: String) -> Result<ControlResponse, HostError> {
        let request = ControlRequest::Steer { run, text };
        let remedy = "`hermod journal last` has a record message.steered if the message was taken";
        match self.order(&request, remedy).await? {
            Ordered::Done(response) => Ok(response),
            Ordered::NoOwner(journal) => {
                drop(journal);
                self.request(&request).await
            }
        }
    }

    /// Sends a command to the owner, once: `remedy` tells how to find out whether it was carried out.
    async fn order(&self, request: &ControlRequest, remedy: &str) -> Result<Ordered, HostError> {
        let mut client = match self.access().await? {
            StoreAccess::Store(journal) => return Ok(Ordered::NoOwner(journal)),
            StoreAccess::Owner(client) => client,
        };
        client.request(request, |_| Ok(())).await.map(Ordered::Done).map_err(|lost| match lost {
            AskError::Rejected(error) => error.into(),
            AskError::Disconnected => HostError::ConnectionLost(remedy.to_owned()),
        })
    }
}

/// The result of sending a command to the owner.
enum Ordered {
    /// The owner has answered.
    Done(ControlResponse),
    /// There is no owner: this process has opened the store.
    NoOwner(Arc<dyn Journal>),
}

/// Writes the ends of the runs from this process; no process runs them, and none is started.
async fn stop_without_owner(
    target: &StopTarget,
    journal: Arc<dyn Journal>,
    state: &Path,
) -> Result<Vec<RunView>, HostError> {
    let reader = StoreReader::new(Arc::clone(&journal));
    let rows = target.rows(&reader).await?;
    if rows.iter().all(|row| row.state == RunState::Ended) {
        if matches!(target, StopTarget::All) {
            // Commands may outlive their runs, and also the store that knew those runs.
            Runner::new(OWN_PROGRAM, state).sweep(|_| false).await;
        }
        return Ok(rows.into_iter().map(RunView::from).collect());
    }
    let host: RuntimeHost = start_write_only(journal, state).await?;
    let stopped = commands::stop(&host.runtime, rows).await;
    host.suspend(ShutdownUrgency::Normal).await;
    Ok(stopped?.into_iter().map(RunView::from).collect())
}

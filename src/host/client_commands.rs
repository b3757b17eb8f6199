//! Stops runs, answers approvals, raises limits and steers runs, from a process that is not the owner of the store. A
//! command goes to the owner, whose side is `control/commands.rs`. Without an owner, this process opens the store and writes
//! the change itself; only steering is refused then. No command resumes a run that no process runs.

use std::sync::Arc;

use hermod_actors::{
    Runtime,
    model::{
        ApprovalDecision, ApprovalScope, LimitIncrease, PersonAnswer, QueueOverrides, RunId, RunState,
        ScheduleName, StopReason,
    },
    port::Journal,
};
use tokio::time::sleep;

use super::{
    error::HostError,
    start::{ShutdownUrgency, start_write_only},
    store_client::{OwnerReply, RETRY_DELAY, StoreClient, unexpected_response},
};
use crate::{
    config::Config,
    control::{
        self, ApprovalWriter, ControlRequest, ControlResponse, RequestError, ScheduleChange, StoreReader,
    },
    policy::ApprovedRules,
    process::runner::{OWN_PROGRAM, Runner},
    view::{ApprovalView, DecisionView, DeliveryView, RunView, ScheduleView},
};

impl StoreClient {
    /// Stops a run durably, with `tree` the root of its tree, or every unfinished run; returns the runs as they are then.
    pub async fn stop(&self, run: Option<String>, tree: bool) -> Result<Vec<RunView>, HostError> {
        let request = match run.clone() {
            Some(run) => ControlRequest::Stop { run, tree, reason: StopReason::Command },
            None => ControlRequest::StopAll {},
        };
        loop {
            match self.ask_owner(&request).await? {
                OwnerReply::Response(ControlResponse::Stopped(runs)) => return Ok(runs),
                OwnerReply::Response(_) => return Err(unexpected_response().into()),
                // Stopping is idempotent, so the request can be repeated.
                OwnerReply::Disconnected => sleep(RETRY_DELAY).await,
                OwnerReply::NoOwner(journal) => {
                    return self.stop_without_owner((run.as_deref(), tree), journal).await;
                }
            }
        }
    }

    /// Decides about a pending approval; `call` may be a run with only one.
    pub async fn decide(
        &self,
        call: &str,
        verdict: ApprovalDecision,
        scope: ApprovalScope,
    ) -> Result<DecisionView, HostError> {
        let request = ControlRequest::ApprovalsDecide { call: call.to_owned(), verdict, scope };
        self.answer_approval(call, request, |approval| control::decision(approval, verdict, scope)).await
    }

    /// Answers a question of a model with text; `call` may be a run with only one.
    pub async fn answer(&self, call: &str, text: String) -> Result<DecisionView, HostError> {
        let request = ControlRequest::ApprovalsAnswer { call: call.to_owned(), text: text.clone() };
        self.answer_approval(call, request, |approval| control::text_answer(approval, text)).await
    }

    async fn answer_approval(
        &self,
        call: &str,
        request: ControlRequest,
        answer: impl FnOnce(&ApprovalView) -> Result<PersonAnswer, RequestError>,
    ) -> Result<DecisionView, HostError> {
        let remedy = "`hermod approvals list` shows whether the question is still open";
        let journal: Arc<dyn Journal> = match self.ask_owner(&request).await? {
            OwnerReply::Response(ControlResponse::Decided(decision)) => return Ok(*decision),
            OwnerReply::Response(_) => return Err(unexpected_response().into()),
            OwnerReply::Disconnected => return Err(HostError::ConnectionLost(remedy.to_owned())),
            OwnerReply::NoOwner(journal) => journal,
        };
        let reader = StoreReader::new(Arc::clone(&journal));
        let approval = reader.find_approval(call).await?;
        let answer = answer(&approval)?;
        let writer = ApprovalWriter::new(ApprovedRules::new(self.state()));
        let decide = async |runtime: &Runtime| writer.answer(runtime, &reader, &approval, &answer).await;
        let decided = self.write(journal, decide).await?;
        Ok(DecisionView::new(approval.call, &answer, RunView::without_process(decided)))
    }

    /// Raises limits of a run.
    pub async fn raise(&self, run: &str, by: LimitIncrease) -> Result<RunView, HostError> {
        let request = ControlRequest::BudgetAdd { run: run.to_owned(), by };
        // The request is not repeated, since the limits could be raised twice.
        let remedy = "`hermod budget show` shows whether the limits are raised";
        let journal: Arc<dyn Journal> = match self.ask_owner(&request).await? {
            OwnerReply::Response(ControlResponse::Raised(run)) => return Ok(*run),
            OwnerReply::Response(_) => return Err(unexpected_response().into()),
            OwnerReply::Disconnected => return Err(HostError::ConnectionLost(remedy.to_owned())),
            OwnerReply::NoOwner(journal) => journal,
        };
        let row = StoreReader::new(Arc::clone(&journal)).run(run).await?;
        let raise = async |runtime: &Runtime| runtime.raise_without_resume(row.id, by).await;
        self.write(journal, raise).await.map(RunView::from)
    }

    /// Sends dead letters again: the one with this id, else all for this target, else all. Without an owner they wait for
    /// the next process that delivers.
    pub async fn retry_deliveries(
        &self,
        id: Option<&str>,
        target: Option<&str>,
    ) -> Result<Vec<DeliveryView>, HostError> {
        let (owned_id, owned_target) = (id.map(str::to_owned), target.map(str::to_owned));
        let request = ControlRequest::DeliveriesRetry { id: owned_id, target: owned_target };
        let remedy = "`hermod deliveries list` shows what is dead still";
        let journal: Arc<dyn Journal> = match self.ask_owner(&request).await? {
            OwnerReply::Response(ControlResponse::Deliveries(retried)) => return Ok(retried),
            OwnerReply::Response(_) => return Err(unexpected_response().into()),
            OwnerReply::Disconnected => return Err(HostError::ConnectionLost(remedy.to_owned())),
            OwnerReply::NoOwner(journal) => journal,
        };
        let reader = StoreReader::new(Arc::clone(&journal));
        let dead = reader.dead_letters(id, target).await?;
        if dead.is_empty() {
            return Ok(Vec::new());
        }
        let retry = async |runtime: &Runtime| control::retry_deliveries(runtime, &reader, dead).await;
        self.write(journal, retry).await
    }

    /// Sets how the messages of a session queue, as a whole.
    pub async fn set_queue(&self, session: &str, queue: QueueOverrides) -> Result<QueueOverrides, HostError> {
        control::check_queue(&queue).map_err(|(field, why)| HostError::usage(format!("{field}: {why}")))?;
        let request = ControlRequest::SessionsQueue { session: session.to_owned(), queue };
        loop {
            match self.ask_owner(&request).await? {
                OwnerReply::Response(ControlResponse::SessionQueue(queue)) => return Ok(queue),
                OwnerReply::Response(_) => return Err(unexpected_response().into()),
                // The setting is a whole one, so the request can be repeated.
                OwnerReply::Disconnected => sleep(RETRY_DELAY).await,
                OwnerReply::NoOwner(journal) => {
                    let journal: Arc<dyn Journal> = journal;
                    let session = StoreReader::new(Arc::clone(&journal)).session(session).await?.id;
                    let set = async |runtime: &Runtime| runtime.set_queue(session, queue).await;
                    return Ok(self.write(journal, set).await?.queue);
                }
            }
        }
    }

    /// Changes a schedule. Without an owner, the agent and the targets of a new definition are looked for in this
    /// configuration.
    pub async fn change_schedule(
        &self,
        name: &ScheduleName,
        change: ScheduleChange,
        config: Option<&Config>,
    ) -> Result<ScheduleView, HostError> {
        let request = ControlRequest::SchedulesChange { name: name.clone(), change: change.clone() };
        let remedy = "`hermod schedules list` shows what holds";
        let journal: Arc<dyn Journal> = match self.ask_owner(&request).await? {
            OwnerReply::Response(ControlResponse::Schedule(changed)) => return Ok(*changed),
            OwnerReply::Response(_) => return Err(unexpected_response().into()),
            OwnerReply::Disconnected => return Err(HostError::ConnectionLost(remedy.to_owned())),
            OwnerReply::NoOwner(journal) => journal,
        };
        if let (ScheduleChange::Put { definition, .. }, Some(config)) = (&change, config) {
            let checked = config.check_schedule(definition);
            checked.map_err(|(part, reason)| HostError::usage(format!("{part}: {reason}")))?;
        }
        let reader = StoreReader::new(Arc::clone(&journal));
        let change = async |runtime: &Runtime| control::change_schedule(runtime, &reader, name, change).await;
        self.write(journal, change).await
    }

    /// Runs a schedule now. Without a service it is refused: no other process has the models that its run needs.
    pub async fn run_schedule(&self, name: &ScheduleName) -> Result<RunId, HostError> {
        let remedy = "`hermod schedules history` shows whether a run has begun";
        match self.ask_owner(&ControlRequest::SchedulesRun { name: name.clone() }).await? {
            OwnerReply::Response(ControlResponse::ScheduleRun { run }) => Ok(run),
            OwnerReply::Response(_) => Err(unexpected_response().into()),
            OwnerReply::Disconnected => Err(HostError::ConnectionLost(remedy.to_owned())),
            OwnerReply::NoOwner(journal) => {
                StoreReader::new(journal).schedule(name).await?;
                Err(HostError::usage(format!(
                    "no service runs that could start the run of `{name}`; start `hermod serve`"
                )))
            }
        }
    }

    /// Sends a steering message. Without an owner it is refused, and the error says how to resume the run.
    pub async fn steer(&self, run: String, text: String) -> Result<ControlResponse, HostError> {
        let request = ControlRequest::Steer { run, text };
        let remedy = "`hermod journal last` has a record message.steered if the message was taken";
        match self.ask_owner(&request).await? {
            OwnerReply::Response(response) => Ok(response),
            OwnerReply::Disconnected => Err(HostError::ConnectionLost(remedy.to_owned())),
            OwnerReply::NoOwner(journal) => self.request_from_store(journal, request).await,
        }
    }

    /// Writes to the store from this process; no process runs its runs, and none is started.
    async fn write<T, E>(
        &self,
        journal: Arc<dyn Journal>,
        work: impl AsyncFnOnce(&Runtime) -> Result<T, E>,
    ) -> Result<T, HostError>
    where
        HostError: From<E>,
    {
        let host = start_write_only(journal, self.state()).await?;
        let written = work(&host.runtime).await;
        host.suspend(ShutdownUrgency::Normal).await;
        Ok(written?)
    }

    /// Stops runs that no process runs.
    async fn stop_without_owner(
        &self,
        (run, tree): (Option<&str>, bool),
        journal: Arc<dyn Journal>,
    ) -> Result<Vec<RunView>, HostError> {
        let mut rows = StoreReader::new(Arc::clone(&journal)).runs_to_stop(run, tree).await?;
        if rows.iter().any(|row| row.state != RunState::Ended) {
            rows = self.write(journal, async |runtime: &Runtime| control::stop(runtime, rows).await).await?;
        } else if run.is_none() {
            // Commands may outlive their runs, and also the store that knew those runs.
            Runner::new(OWN_PROGRAM, self.state()).sweep(|_| false).await;
        }
        Ok(rows.into_iter().map(RunView::from).collect())
    }
}

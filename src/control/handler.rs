//! Answers the requests of clients. Queries are answered from the store. Commands are executed by the runtime of this
//! process, see `commands.rs`. `run_views.rs` has the views of runs.

use std::{pin::pin, sync::Arc, time::Duration};

use hermod_actors::{
    HealthProbe, Runtime,
    model::{LimitIncrease, PersonAnswer, RunRow, RunState, Seq, SessionId, StopReason, StoreLimits},
};
use tokio::{
    sync::mpsc,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    approvals::{ApprovalWriter, decision, text_answer},
    backup_service::{BackupService, back_up},
    commands::{self, RuntimeSlot},
    error::RequestError,
    follower_stream::{self, follow_feed},
    maintenance::{MaintenanceService, SessionRemoval},
    protocol::{ControlRequest, ControlResponse},
    reader::{PAGE_RECORDS, StoreReader},
    run_filter::RunFilter,
    service_control,
    submission::{SubmissionService, SubmittedRun},
    tree::RunTreeCache,
    usage_days::check_days,
};
use crate::{
    clock,
    policy::ApprovedRules,
    view::{ApprovalView, BudgetView, DecisionView, NodeView, SessionDetailView, SessionView},
};

/// Interval of heartbeat lines during a long request.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Answers requests. A clone shares the store and the runtime.
#[derive(Debug, Clone)]
pub struct RequestHandler {
    reader: StoreReader,
    runtime: Option<Arc<RuntimeSlot>>,
    run_trees: Arc<tokio::sync::Mutex<RunTreeCache>>,
    backups: Option<Arc<dyn BackupService>>,
    maintenance: Arc<dyn MaintenanceService>,
    approvals: Option<Arc<ApprovalWriter>>,
}

impl RequestHandler {
    /// A handler for a process that only has the store open: it refuses commands and backups.
    pub fn new(reader: StoreReader, maintenance: Arc<dyn MaintenanceService>) -> Self {
        Self { reader, maintenance, runtime: None, backups: None, run_trees: Arc::default(), approvals: None }
    }

    /// This handler for the owner of the store. Commands wait until a runtime is attached to the slot. Approvals for
    /// always are added to `approved`.
    #[must_use]
    pub fn of_owner(
        self,
        runtime: Arc<RuntimeSlot>,
        backups: Arc<dyn BackupService>,
        approved: ApprovedRules,
    ) -> Self {
        let approvals = Some(Arc::new(ApprovalWriter::new(approved)));
        Self { runtime: Some(runtime), backups: Some(backups), approvals, ..self }
    }

    /// The reader of the store.
    pub const fn reader(&self) -> &StoreReader {
        &self.reader
    }

    /// This handler for one client, with its own cache of run trees.
    pub(super) fn for_client(self) -> Self {
        Self { run_trees: Arc::default(), ..self }
    }

    /// Sends the answer of a request to `to`. Sends none if the runtime ends before it answers.
    pub async fn answer(&self, request: ControlRequest, to: &mpsc::Sender<ControlResponse>) {
        let answer = match self.check_answerable(&request) {
            Ok(()) => self.respond(request, to).await,
            Err(error) => Err(error),
        };
        if let Some(answer) = answer.unwrap_or_else(|error| Some(ControlResponse::Refused(error))) {
            send(to, answer).await;
        }
    }

    /// The last line of the answer; `None` if the client is gone or the runtime has ended.
    async fn respond(
        &self,
        request: ControlRequest,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        Ok(Some(match request {
            ControlRequest::Ping {} => self.pong(),
            ControlRequest::RunsList { .. }
            | ControlRequest::RunsShow { .. }
            | ControlRequest::RunsRecords { .. }
            | ControlRequest::SessionsList { .. }
            | ControlRequest::ConversationsList { .. }
            | ControlRequest::SessionsShow { .. }
            | ControlRequest::UsageDays { .. }
            | ControlRequest::Report { .. } => return self.answer_about_runs(request, to).await,
            ControlRequest::SessionsQueue { session, queue } => return self.set_queue(&session, queue).await,
            ControlRequest::Tree { run } => ControlResponse::Tree(self.tree(run.as_deref()).await?),
            ControlRequest::BudgetShow { run } => ControlResponse::Budget(Box::new(self.budget(&run).await?)),
            ControlRequest::LimitsShow { limits } => self.periods(limits).await?,
            ControlRequest::ApprovalsList {} => ControlResponse::Approvals(self.reader.approvals().await?),
            ControlRequest::ModelsList {} => self.models().await?,
            ControlRequest::Journal { session, from } => return self.journal(&session, from, to).await,
            ControlRequest::BackupCreate { dir } => return back_up(self.backups.as_deref(), dir, to).await,
            ControlRequest::Gc(_) | ControlRequest::StoreFootprint {} => {
                return self.maintain(request, to).await;
            }
            ControlRequest::ServiceStatus {}
            | ControlRequest::ServiceDrain { .. }
            | ControlRequest::ConfigReload {}
            | ControlRequest::HooksEnable { .. } => return self.operate(request, to).await,
            ControlRequest::Stop { run, tree, reason } => return self.stop(Some(&run), tree, reason).await,
            ControlRequest::StopAll {} => return self.stop(None, false, StopReason::Command).await,
            ControlRequest::Steer { run, text } => return self.steer(&run, text).await,
            ControlRequest::AgentsList {} => return self.agents().await,
            ControlRequest::RunsSubmit(_)
            | ControlRequest::RunsSubmitFile { .. }
            | ControlRequest::RunsResume { .. } => return self.answer_submission(request, to).await,
            ControlRequest::RunsFollow { run, from, revive } => {
                return self.follow_run(&run, (from, revive), to).await;
            }
            ControlRequest::SessionsFollow { session, from } => {
                return self.follow_session(&session, from, to).await;
            }
            ControlRequest::FeedFollow { after } => return follow_feed(self.slot()?, after, to).await,
            ControlRequest::BudgetAdd { run, by } => return self.raise(&run, by).await,
            ControlRequest::ApprovalsDecide { .. } | ControlRequest::ApprovalsAnswer { .. } => {
                return self.answer_approval(request).await;
            }
            ControlRequest::MessagesSend(_)
            | ControlRequest::MessagesSendFile { .. }
            | ControlRequest::MessagesShow { .. } => return self.answer_about_messages(request, to).await,
            ControlRequest::DeliveriesList { .. }
            | ControlRequest::DeliveriesShow { .. }
            | ControlRequest::DeliveriesRetry { .. } => return self.answer_about_deliveries(request).await,
            ControlRequest::SchedulesList {}
            | ControlRequest::SchedulesShow { .. }
            | ControlRequest::SchedulesHistory { .. }
            | ControlRequest::SchedulesChange { .. }
            | ControlRequest::SchedulesRun { .. } => return self.answer_about_schedules(request).await,
            ControlRequest::ProvidersStatus {} => return self.execute(commands::providers).await,
            ControlRequest::SummariesStatus {} => return self.execute(commands::summaries).await,
            ControlRequest::ProvidersReset { name } => return self.reset_provider(name).await,
        }))
    }

    /// Answers a request about stored runs and sessions.
    async fn answer_about_runs(
        &self,
        request: ControlRequest,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the handler passes no other request")]
        Ok(Some(match request {
            ControlRequest::RunsList { max, agent, since, until, schedule, outcomes } => {
                self.list_runs(max, &RunFilter { agent, since, until, schedule, outcomes }).await?
            }
            ControlRequest::RunsShow { run } => ControlResponse::Run(Box::new(self.run(&run).await?)),
            ControlRequest::RunsRecords { run, from } => return self.send_run_records(&run, from, to).await,
            ControlRequest::SessionsList { max } => ControlResponse::Sessions(self.sessions(max).await?),
            ControlRequest::ConversationsList { max, check } => {
                ControlResponse::Conversations(self.reader.conversations(max, check).await?)
            }
            ControlRequest::SessionsShow { session, max } => {
                ControlResponse::Session(self.session(&session, max).await?)
            }
            ControlRequest::UsageDays { days } => {
                return long(self.days(check_days(days)?, |_| true), ControlResponse::Days, to).await;
            }
            ControlRequest::Report { since, until, limits } => {
                // Boxed: it is larger than all other answers.
                let report = Box::pin(self.report((since, until), limits));
                return long(report, |report| ControlResponse::Report(Box::new(report)), to).await;
            }
            _ => return Err(RequestError::internal("this is no request about runs")),
        }))
    }

    /// Measures the store, or removes what nothing needs.
    async fn maintain(
        &self,
        request: ControlRequest,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        if let ControlRequest::Gc(request) = request {
            return long(self.maintenance.gc(request), ControlResponse::Gc, to).await;
        }
        long(self.maintenance.footprint(), ControlResponse::Footprint, to).await
    }

    /// Takes a person's answer to a pending approval.
    async fn answer_approval(
        &self,
        request: ControlRequest,
    ) -> Result<Option<ControlResponse>, RequestError> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the handler passes no other request")]
        decided(match request {
            ControlRequest::ApprovalsDecide { call, verdict, scope } => {
                self.decide(&call, |approval| decision(approval, verdict, scope)).await
            }
            ControlRequest::ApprovalsAnswer { call, text } => {
                self.decide(&call, |approval| text_answer(approval, text)).await
            }
            _ => Err(RequestError::internal("this is no answer to an approval")),
        })
    }

    /// The present periods, with the limits of the runtime, else with these.
    pub(super) async fn periods(&self, limits: StoreLimits) -> Result<ControlResponse, RequestError> {
        let present = self.runtime.as_ref().and_then(|slot| slot.store_limits());
        let periods = self.reader.periods(&present.unwrap_or(limits), clock::now()).await?;
        Ok(ControlResponse::Limits(periods))
    }

    async fn models(&self) -> Result<ControlResponse, RequestError> {
        Ok(ControlResponse::Models(self.reader.read(|rows| rows.all_models()).await?))
    }

    async fn reset_provider(&self, name: String) -> Result<Option<ControlResponse>, RequestError> {
        self.execute(|runtime| commands::reset_provider(runtime, name)).await
    }

    /// Refuses what only a runtime can answer, in a process without one.
    fn check_answerable(&self, request: &ControlRequest) -> Result<(), RequestError> {
        if self.runtime.is_none() && request.asks_providers() {
            let text = "no provider is asked from this process: it only looks into the store";
            return Err(RequestError::usage(text));
        }
        Ok(())
    }

    fn pong(&self) -> ControlResponse {
        let health = self.health();
        ControlResponse::Pong {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            writing_since: health.as_ref().and_then(HealthProbe::writing_since),
            stalled: health.as_ref().map(HealthProbe::stalled_handlers).unwrap_or_default(),
            submissions: self.runtime.as_ref().map(|slot| slot.kind()),
        }
    }

    pub(super) fn health(&self) -> Option<HealthProbe> {
        self.runtime.as_ref()?.health()
    }

    /// The session that `id` names, with at most `max` of its runs.
    pub async fn session(&self, id: &str, max: usize) -> Result<SessionDetailView, RequestError> {
        let row = self.reader.session(id).await?;
        let runs = self.runs(Some(row.id), max).await?;
        let (quarantined, todo) = match self.reader.waits(row.id).await? {
            Ok(waits) => (None, waits.todo()),
            Err(reason) => (Some(reason), None),
        };
        Ok(SessionDetailView { session: SessionView::new(&row, quarantined), runs, todo })
    }

    /// Removes a session and those of its subagents.
    pub async fn remove_session(&self, session: SessionId) -> Result<SessionRemoval, RequestError> {
        self.maintenance.remove_session(session).await
    }

    async fn sessions(&self, max: usize) -> Result<Vec<SessionView>, RequestError> {
        let mut sessions = Vec::new();
        for row in self.reader.read(|rows| rows.sessions(max)).await? {
            sessions.push(SessionView::new(&row, self.reader.quarantine_reason(row.id).await?));
        }
        Ok(sessions)
    }

    async fn journal(
        &self,
        id: &str,
        from: Seq,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        let session = self.reader.session(id).await?.id;
        let mut next = from;
        loop {
            let (page, damage) = self.reader.events(session, next).await?;
            let has_more = page.len() == PAGE_RECORDS;
            for event in page {
                next = event.seq + 1;
                if !send(to, ControlResponse::Record(event)).await {
                    return Ok(None);
                }
            }
            if let Some(damage) = damage {
                return Err(damage);
            }
            if !has_more {
                return Ok(Some(ControlResponse::End {}));
            }
        }
    }

    /// The run that `id` names with its subagents; without `id`, all unfinished runs.
    pub async fn tree(&self, id: Option<&str>) -> Result<Vec<NodeView>, RequestError> {
        let runs = match id {
            Some(id) => vec![self.reader.run(id).await?],
            None => self.reader.read(|rows| rows.open_runs()).await?,
        };
        let health = self.health();
        let mut run_trees = self.run_trees.lock().await;
        run_trees.build(&self.reader, health.as_ref(), runs).await
    }

    /// The budget of the run that `id` names.
    pub async fn budget(&self, id: &str) -> Result<BudgetView, RequestError> {
        let row = self.reader.run(id).await?;
        let (leg, (accounts, wall)) = (row.leg, self.reader.budget(&row).await?);
        Ok(BudgetView { run: self.view(row).await?, leg, accounts, wall })
    }

    async fn answer_submission(
        &self,
        request: ControlRequest,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the caller passes no other request")]
        match request {
            ControlRequest::RunsSubmit(submission) => {
                self.submit(|to| async move { to.submit(*submission).await }, to).await
            }
            ControlRequest::RunsSubmitFile { name } => {
                self.submit(|to| async move { to.submit_file(name).await }, to).await
            }
            ControlRequest::RunsResume { id } => {
                self.submit(|to| async move { to.resume(id).await }, to).await
            }
            _ => Err(RequestError::internal("this is no submission")),
        }
    }

    async fn agents(&self) -> Result<Option<ControlResponse>, RequestError> {
        let agents = self.slot()?.execute_with(|_, service| async move { service.agents() }).await;
        Ok(agents.map(ControlResponse::Agents))
    }

    /// Passes a submission on, with heartbeats until its run is durable.
    async fn submit<F: Future<Output = Result<SubmittedRun, RequestError>>>(
        &self,
        submit: impl FnOnce(Arc<dyn SubmissionService>) -> F,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        let slot = self.slot()?;
        let submitted = async { slot.execute_with(|_, service| submit(service)).await.transpose() };
        let submitted = with_heartbeats(submitted, to).await?.flatten();
        Ok(submitted.map(|run| ControlResponse::Submitted(Box::new(run))))
    }

    async fn follow_run(
        &self,
        run: &str,
        how: (Option<Seq>, bool),
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        let row = self.reader.run(run).await?;
        follower_stream::follow(self.slot()?, row, how, to).await
    }

    async fn follow_session(
        &self,
        session: &str,
        from: Seq,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        let session = self.reader.session(session).await?.id;
        follower_stream::follow_session(self.slot()?, (session, from), to).await
    }

    async fn raise(&self, run: &str, by: LimitIncrease) -> Result<Option<ControlResponse>, RequestError> {
        let run = self.reader.run(run).await?.id;
        self.execute(|runtime| commands::raise(runtime, run, by)).await
    }

    /// The runtime of this process; an error in one that only has the store open.
    pub(super) fn slot(&self) -> Result<&RuntimeSlot, RequestError> {
        self.runtime.as_deref().ok_or_else(no_runtime)
    }

    /// Has the service of this process do something.
    async fn operate(
        &self,
        request: ControlRequest,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        service_control::operate(self.runtime.as_ref().ok_or_else(no_runtime)?, request, to).await
    }

    async fn steer(&self, run: &str, text: String) -> Result<Option<ControlResponse>, RequestError> {
        let row = self.reader.run(run).await?;
        let Some(slot) = &self.runtime else { return Err(not_under_way(&row)) };
        let kind = slot.kind();
        let steer = |runtime, submissions| commands::steer((runtime, submissions), kind, row, text);
        slot.execute_with(steer).await.transpose()
    }

    async fn stop(
        &self,
        run: Option<&str>,
        tree: bool,
        reason: StopReason,
    ) -> Result<Option<ControlResponse>, RequestError> {
        if reason == StopReason::Parent {
            return Err(RequestError::usage(
                "reason: only a parent run stops for it; give command or signal",
            ));
        }
        let rows = self.reader.runs_to_stop(run, tree).await?;
        if rows.is_empty() {
            return Ok(Some(ControlResponse::Stopped(Vec::new())));
        }
        self.execute(|runtime| commands::stop_runs(runtime, rows, reason)).await
    }

    /// Answers the pending approval that `call` names; `None` if the runtime has ended.
    pub async fn decide(
        &self,
        call: &str,
        answer: impl FnOnce(&ApprovalView) -> Result<PersonAnswer, RequestError>,
    ) -> Result<Option<DecisionView>, RequestError> {
        let approval = self.reader.find_approval(call).await?;
        let answer = answer(&approval)?;
        let writer = self.approvals.as_ref().ok_or_else(no_runtime)?;
        let writer = (&**writer, &self.reader);
        self.execute(|runtime| commands::decide(runtime, writer, &approval, &answer)).await
    }

    /// Executes a command once the runtime is attached; `None` if the runtime has ended.
    pub(super) async fn execute<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        command: impl FnOnce(Arc<Runtime>) -> F,
    ) -> Result<Option<T>, RequestError> {
        self.slot()?.execute(command).await.transpose()
    }
}

fn decided(
    decision: Result<Option<DecisionView>, RequestError>,
) -> Result<Option<ControlResponse>, RequestError> {
    Ok(decision?.map(|decision| ControlResponse::Decided(Box::new(decision))))
}

fn no_runtime() -> RequestError {
    RequestError::internal("nothing runs in this process")
}

/// The error of a message to a run in a process without a runtime.
fn not_under_way(run: &RunRow) -> RequestError {
    RequestError::usage(match &run.ended {
        None if run.state == RunState::Parked => format!(
            "no process runs run {0}, and it waits for a person: answer it (see `hermod approvals list`), or take it up \
             with `hermod runs resume {0}` and steer it then",
            run.id
        ),
        Some(ended) => format!(
            "run {0} has ended: {ended}; `hermod run --resume {0} TEXT` continues its conversation",
            run.id
        ),
        None => format!("no process runs run {0}; it goes on with `hermod run --resume {0}`", run.id),
    })
}

/// The answer to a long request, made of its result; heartbeats precede it.
async fn long<T>(
    work: impl Future<Output = Result<T, RequestError>>,
    answer: impl FnOnce(T) -> ControlResponse,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<ControlResponse>, RequestError> {
    Ok(with_heartbeats(work, to).await?.map(answer))
}

/// The result of `work`, with heartbeats until then; `None` if the client is gone.
pub(super) async fn with_heartbeats<T>(
    work: impl Future<Output = Result<T, RequestError>>,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<T>, RequestError> {
    let mut ticks = interval(HEARTBEAT_INTERVAL);
    // The first tick of an interval is at once.
    ticks.reset();
    with_progress(work, ticks, || ControlResponse::Heartbeat {}, to).await
}

/// Waits for `work`, and sends a line at each tick. Returns `None` and drops `work` if the client is gone.
pub(super) async fn with_progress<T>(
    work: impl Future<Output = Result<T, RequestError>>,
    mut ticks: Interval,
    line: impl Fn() -> ControlResponse,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<T>, RequestError> {
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done.map(Some),
            _ = ticks.tick() => if !send(to, line()).await { return Ok(None) },
        }
    }
}

/// False if the receiver is gone.
pub(super) async fn send(to: &mpsc::Sender<ControlResponse>, answer: ControlResponse) -> bool {
    to.send(answer).await.is_ok()
}

//! Answers the requests of clients. Queries are answered from the store. Commands are queued for the process with the
//! runtime: their types and their receiver are here, `host/commands.rs` executes them.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hermod_actors::{
    HealthProbe, Runtime, StalledHandler,
    model::{ApprovalDecision, CallId, LimitIncrease, RunId, RunRow, RunState, Seq, SessionId},
};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::sleep,
};

use super::{
    backup_service::{BackupService, back_up},
    error::{RequestError, RequestErrorKind},
    maintenance::MaintenanceService,
    protocol::{ControlRequest, ControlResponse, HandlerStall},
    reader::{PAGE_RECORDS, StoreReader, not_accepted},
    run_detail::RunDetailFold,
    tree::{RunTreeCache, run_view, run_waits},
};
use crate::view::{
    BudgetView, NodeView, RunDetailView, RunSummaryView, RunView, SessionDetailView, SessionView,
};

/// Limit of commands that wait for the runtime.
const MAX_PENDING_COMMANDS: usize = 32;
/// Interval of heartbeat lines during a long request.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Answers requests. A clone shares the store and the runtime.
#[derive(Debug, Clone)]
pub struct RequestHandler {
    reader: StoreReader,
    commands: Option<mpsc::Sender<PendingCommand>>,
    health: SharedHealthProbe,
    run_trees: Arc<tokio::sync::Mutex<RunTreeCache>>,
    backups: Option<Arc<dyn BackupService>>,
    maintenance: Option<Arc<dyn MaintenanceService>>,
}

/// Health probe of this process's runtime, once one is attached.
type SharedHealthProbe = Arc<Mutex<Option<HealthProbe>>>;

/// A command that only the process with the runtime can carry out.
#[derive(Debug)]
pub enum ControlCommand {
    /// Stops these runs.
    Stop(Vec<RunRow>),
    /// Sends a steering message to a run.
    Steer {
        /// The run to steer.
        run: Box<RunRow>,
        /// The text of the message.
        text: Arc<str>,
    },
    /// Answers the pending approval of a call.
    Decide {
        /// The call to decide about.
        call: CallId,
        /// Whether the call may be made again.
        verdict: ApprovalDecision,
    },
    /// Raises limits of a run.
    Raise {
        /// The run whose limits rise.
        run: RunId,
        /// The amounts to add.
        by: LimitIncrease,
    },
    /// Reports the availability of models.
    Providers,
    /// Forgets every failure of the provider with this name.
    ResetProvider(String),
    /// Reports the summary calls and the statistics of summarisers.
    Summaries,
}

/// A command with the channel for its answer.
#[derive(Debug)]
pub struct PendingCommand {
    /// The command to carry out.
    pub command: ControlCommand,
    /// The channel for the answer. Dropping it unsent reports that the runtime has ended.
    pub reply: oneshot::Sender<ControlResponse>,
}

/// Receives commands for the runtime of this process.
#[derive(Debug)]
pub struct CommandReceiver {
    receiver: mpsc::Receiver<PendingCommand>,
    health: SharedHealthProbe,
}

impl CommandReceiver {
    /// The next command; `None` after the last handler is dropped or after `close`.
    pub async fn recv(&mut self) -> Option<PendingCommand> {
        self.receiver.recv().await
    }

    /// Accepts no further commands.
    pub fn close(&mut self) {
        self.receiver.close();
    }

    /// Attaches the runtime that carries out the commands; the handler then reads waits and health from it.
    pub fn attach_runtime(&self, runtime: &Runtime) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime.health_probe());
    }
}

impl RequestHandler {
    /// A handler for a process with a runtime, and the receiver of its commands.
    pub fn new(reader: StoreReader) -> (Self, CommandReceiver) {
        let (sender, receiver) = mpsc::channel(MAX_PENDING_COMMANDS);
        let health = SharedHealthProbe::default();
        let handler =
            Self { commands: Some(sender), health: Arc::clone(&health), ..Self::without_runtime(reader) };
        (handler, CommandReceiver { receiver, health })
    }

    /// A handler for a process that only has the store open: it refuses commands.
    pub fn without_runtime(reader: StoreReader) -> Self {
        let (health, run_trees) = (SharedHealthProbe::default(), Arc::default());
        Self { reader, commands: None, health, run_trees, backups: None, maintenance: None }
    }

    /// This handler for one client, with its own cache of run trees.
    pub(super) fn for_client(self) -> Self {
        Self { run_trees: Arc::default(), ..self }
    }

    /// Adds the service for backups.
    #[must_use]
    pub fn with_backup_service(self, backups: Arc<dyn BackupService>) -> Self {
        Self { backups: Some(backups), ..self }
    }

    /// Adds the service for garbage collection and disk usage.
    #[must_use]
    pub fn with_maintenance(self, maintenance: Arc<dyn MaintenanceService>) -> Self {
        Self { maintenance: Some(maintenance), ..self }
    }

    /// Sends the answer of a request to `to`. Sends none if the runtime ends before it answers.
    pub async fn answer(&self, request: ControlRequest, to: &mpsc::Sender<ControlResponse>) {
        let answer = self.respond(request, to).await;
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
        let reader = &self.reader;
        Ok(Some(match request {
            ControlRequest::Ping {} => self.pong(),
            ControlRequest::RunsList { max } => ControlResponse::Runs(self.summaries(max).await?),
            ControlRequest::RunsShow { run } => ControlResponse::Run(Box::new(self.run(&run).await?)),
            ControlRequest::SessionsList { max } => ControlResponse::Sessions(self.sessions(max).await?),
            ControlRequest::SessionsShow { session, max } => {
                ControlResponse::Session(self.session(&session, max).await?)
            }
            ControlRequest::Tree { run } => ControlResponse::Tree(self.tree(run.as_deref()).await?),
            ControlRequest::BudgetShow { run } => ControlResponse::Budget(Box::new(self.budget(&run).await?)),
            ControlRequest::ApprovalsList {} => ControlResponse::Approvals(reader.approvals().await?),
            ControlRequest::ModelsList {} => {
                ControlResponse::Models(reader.read(|rows| rows.all_models()).await?)
            }
            ControlRequest::Journal { session, from } => return self.journal(&session, from, to).await,
            ControlRequest::BackupCreate { dir } => return back_up(self.backups.as_deref(), dir, to).await,
            ControlRequest::Gc(request) => {
                let report = with_heartbeat(self.maintenance()?.gc(request), to).await?;
                return Ok(report.map(ControlResponse::Gc));
            }
            ControlRequest::StoreFootprint {} => {
                let footprint = with_heartbeat(self.maintenance()?.footprint(), to).await?;
                return Ok(footprint.map(ControlResponse::Footprint));
            }
            ControlRequest::Stop { run, tree } => {
                let row = if tree { reader.root(&run).await? } else { reader.run(&run).await? };
                return self.send_command(ControlCommand::Stop(vec![row])).await;
            }
            ControlRequest::StopAll {} => match reader.read(|rows| rows.open_runs()).await? {
                open if open.is_empty() => ControlResponse::Stopped(Vec::new()),
                open => return self.send_command(ControlCommand::Stop(open)).await,
            },
            ControlRequest::Steer { run, text } => {
                let run = Box::new(reader.run(&run).await?);
                return self.send_command(ControlCommand::Steer { run, text: text.into() }).await;
            }
            ControlRequest::BudgetAdd { run, by } => {
                let run = reader.run(&run).await?.id;
                return self.send_command(ControlCommand::Raise { run, by }).await;
            }
            ControlRequest::ApprovalsDecide { call, verdict } => {
                let (_, call) = reader.find_approval(&call).await?;
                return self.send_command(ControlCommand::Decide { call, verdict }).await;
            }
            ControlRequest::ProvidersStatus {} => return self.send_command(ControlCommand::Providers).await,
            ControlRequest::SummariesStatus {} => return self.send_command(ControlCommand::Summaries).await,
            ControlRequest::ProvidersReset { name } => {
                return self.send_command(ControlCommand::ResetProvider(name)).await;
            }
        }))
    }

    fn pong(&self) -> ControlResponse {
        let health = self.health();
        ControlResponse::Pong {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            writing_since: health.as_ref().and_then(HealthProbe::writing_since),
            stalled: health.as_ref().map(stalled).unwrap_or_default(),
        }
    }

    async fn runs(&self, session: Option<SessionId>, max: usize) -> Result<Vec<RunView>, RequestError> {
        let mut runs = Vec::new();
        for row in self.reader.read(|rows| rows.runs(session, max)).await? {
            runs.push(self.view(row).await?);
        }
        Ok(runs)
    }

    async fn summaries(&self, max: usize) -> Result<Vec<RunSummaryView>, RequestError> {
        let mut summaries = Vec::new();
        for row in self.reader.read(|rows| rows.runs(None, max)).await? {
            // A session that cannot be read must not hide the other runs.
            let mut unreadable = None;
            let mut tolerate = |error: RequestError| {
                if error.kind != RequestErrorKind::Store {
                    return Err(error);
                }
                unreadable = Some(error.text);
                Ok(())
            };
            let accepted = self.reader.acceptance(&row).await.map(Some);
            let accepted = accepted.or_else(|error| tolerate(error).map(|()| None))?;
            let account = self.reader.read(|rows| rows.account(row.id.into())).await;
            let account = account.or_else(|error| tolerate(error).map(|()| None))?;
            let spent_usd = account.and_then(|account| account.spent.usd);
            let summary = RunSummaryView::new(self.view(row).await?, accepted.as_ref());
            summaries.push(RunSummaryView { spent_usd, unreadable, ..summary });
        }
        Ok(summaries)
    }

    /// The view of a run with current counts.
    async fn view(&self, row: RunRow) -> Result<RunView, RequestError> {
        let row = self.reader.with_current_counts(row).await?;
        Ok(run_view(row, self.health().as_ref()).await)
    }

    async fn run(&self, id: &str) -> Result<RunDetailView, RequestError> {
        let row = self.reader.run(id).await?;
        let mut detail = RunDetailFold::new(&row);
        let damage = self.reader.readable_records(row.session, 1, |_, record| detail.take(record)).await?;
        let accepted = match (damage, detail.accepted) {
            (None, Some(accepted)) => accepted,
            (damage, _) => {
                let reason = damage.unwrap_or_else(|| not_accepted(&row).text);
                return Ok(RunDetailView::unreadable(self.view(row).await?, reason));
            }
        };
        let health = self.health();
        let waits = match &detail.waits {
            Some(tracker) => run_waits(&row, tracker, health.as_ref()).await,
            None => Vec::new(),
        };
        let mut run = run_view(row, health.as_ref()).await;
        if run.ended.is_none() {
            (run.iterations, run.usage) = (detail.counts.iterations, detail.counts.usage);
        }
        Ok(RunDetailView {
            run,
            waits,
            cost: detail.bill.nano_usd(),
            unpriced: detail.bill.unpriced().to_vec(),
            input: accepted.input.to_string(),
            last_text: detail.last_text,
            spec: Some((*accepted.spec).clone()),
            unreadable: None,
        })
    }

    fn health(&self) -> Option<HealthProbe> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn session(&self, id: &str, max: usize) -> Result<SessionDetailView, RequestError> {
        let row = self.reader.session(id).await?;
        let runs = self.runs(Some(row.id), max).await?;
        let (quarantined, todo) = match self.reader.waits(row.id).await? {
            Ok(waits) => (None, waits.todo()),
            Err(reason) => (Some(reason), None),
        };
        Ok(SessionDetailView { session: SessionView::new(&row, quarantined), runs, todo })
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

    async fn tree(&self, id: Option<&str>) -> Result<Vec<NodeView>, RequestError> {
        let runs = match id {
            Some(id) => vec![self.reader.run(id).await?],
            None => self.reader.read(|rows| rows.open_runs()).await?,
        };
        let health = self.health();
        let mut run_trees = self.run_trees.lock().await;
        run_trees.build(&self.reader, health.as_ref(), runs).await
    }

    async fn budget(&self, id: &str) -> Result<BudgetView, RequestError> {
        let row = self.reader.run(id).await?;
        let (leg, (accounts, wall)) = (row.leg, self.reader.budget(&row).await?);
        Ok(BudgetView { run: self.view(row).await?, leg, accounts, wall })
    }

    fn maintenance(&self) -> Result<&dyn MaintenanceService, RequestError> {
        let text = "this process does not maintain the state directory";
        self.maintenance.as_deref().ok_or_else(|| RequestError::new(RequestErrorKind::Internal, text))
    }

    async fn send_command(&self, command: ControlCommand) -> Result<Option<ControlResponse>, RequestError> {
        let Some(commands) = &self.commands else { return Err(no_runtime(&command)) };
        let (reply, answer) = oneshot::channel();
        match commands.try_send(PendingCommand { command, reply }) {
            Ok(()) => Ok(answer.await.ok()),
            Err(TrySendError::Full(_)) => {
                let text = format!("{MAX_PENDING_COMMANDS} orders wait already; try again in a moment");
                Err(RequestError::new(RequestErrorKind::Busy, text))
            }
            // The receiver is dropped: the runtime has ended.
            Err(TrySendError::Closed(_)) => Ok(None),
        }
    }
}

fn stalled(health: &HealthProbe) -> Vec<HandlerStall> {
    let handlers = health.stalled_handlers().into_iter();
    let stall = |handler: StalledHandler| HandlerStall {
        actor: handler.actor.to_owned(),
        session: handler.session,
        since: handler.since,
    };
    handlers.map(stall).collect()
}

/// The error of a command in a process without a runtime.
fn no_runtime(command: &ControlCommand) -> RequestError {
    match command {
        ControlCommand::Steer { run, .. } => RequestError::usage(match &run.ended {
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
        }),
        ControlCommand::Providers | ControlCommand::ResetProvider(_) | ControlCommand::Summaries => {
            RequestError::usage("no provider is asked from this process: it only looks into the store")
        }
        ControlCommand::Stop(_) | ControlCommand::Decide { .. } | ControlCommand::Raise { .. } => {
            RequestError::new(RequestErrorKind::Internal, "nothing runs in this process")
        }
    }
}

/// Waits for `work` with regular heartbeats. Returns `None` and drops `work` if the client is gone.
async fn with_heartbeat<T>(
    work: impl Future<Output = Result<T, RequestError>>,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<T>, RequestError> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done.map(Some),
            () = sleep(HEARTBEAT_INTERVAL) => if !send(to, ControlResponse::Heartbeat {}).await { return Ok(None) },
        }
    }
}

/// False if the receiver is gone.
async fn send(to: &mpsc::Sender<ControlResponse>, answer: ControlResponse) -> bool {
    to.send(answer).await.is_ok()
}

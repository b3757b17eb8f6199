//! Who answers: questions from the store, orders through whoever runs the runs.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hermod_actors::{
    Runtime, StalledHandler, Vitals,
    model::{CallId, Raised, RunId, RunRow, RunState, Seq, SessionRow, Verdict, Wait},
    port::{Clock, Read},
};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::sleep,
};

use super::{
    copier::{Copier, back_up},
    fault::{Fault, FaultKind},
    protocol::{Answer, Request, RunDetail, SessionDetail, SessionState, Stalled, shown},
    reader::{PAGE, Reader},
    status::{RunStatus, RunSummary},
    tree::{self, Forest},
    upkeep::{Caretaker, Sweep},
};
use crate::clock::SystemClock;

/// Orders that may wait.
const WAITING: usize = 32;
/// How often a client is told that what it asked for goes on.
const PULSE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Clone)]
pub struct Desk {
    reader: Reader,
    orders: Option<mpsc::Sender<Ordered>>,
    runner: Runner,
    forest: Arc<tokio::sync::Mutex<Forest>>,
    copier: Option<Arc<dyn Copier>>,
    caretaker: Option<Arc<dyn Caretaker>>,
}

/// Signs of life of the runtime of this process, from when there is one.
type Runner = Arc<Mutex<Option<Vitals>>>;

/// What only who runs the runs can do.
#[derive(Debug)]
pub enum Order {
    /// End these as stopped.
    Stop(Vec<RunRow>),
    /// Say something to this one.
    Steer {
        /// The run.
        run: Box<RunRow>,
        /// What is said.
        text: Arc<str>,
    },
    /// Decide about a call.
    Decide {
        /// The call.
        call: CallId,
        /// What is decided.
        verdict: Verdict,
    },
    /// Raise limits of this run.
    Raise {
        /// The run.
        run: RunId,
        /// By how much.
        by: Raised,
    },
    /// Tell which models are asked.
    Providers,
    /// Forget every failure of the provider of this name.
    ResetProvider(String),
}

/// An order, and who waits for it.
#[derive(Debug)]
pub struct Ordered {
    /// What is to be done.
    pub order: Order,
    /// What came of it. Dropped, the one who waits finds out by itself.
    pub reply: oneshot::Sender<Answer>,
}

/// The orders to be carried out.
#[derive(Debug)]
pub struct Orders {
    waiting: mpsc::Receiver<Ordered>,
    runner: Runner,
}

impl Orders {
    /// The next one; `None` if nobody can give any.
    pub async fn recv(&mut self) -> Option<Ordered> {
        self.waiting.recv().await
    }

    /// Takes no more.
    pub fn close(&mut self) {
        self.waiting.close();
    }

    /// From now on this runtime carries them out, and is asked what its runs wait for.
    pub fn carried_out_by(&self, runtime: &Runtime) {
        *self.runner.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime.vitals());
    }
}

impl Desk {
    /// A desk for a process that runs things, and the orders that it gets.
    pub fn new(reader: Reader) -> (Self, Orders) {
        let (sender, waiting) = mpsc::channel(WAITING);
        let runner = Runner::default();
        let desk = Self { orders: Some(sender), runner: Arc::clone(&runner), ..Self::alone(reader) };
        (desk, Orders { waiting, runner })
    }

    /// A desk for a process that only has the store open: it takes no orders.
    pub fn alone(reader: Reader) -> Self {
        let (runner, forest) = (Runner::default(), Arc::default());
        Self { reader, orders: None, runner, forest, copier: None, caretaker: None }
    }

    /// This desk for one client: what was read to answer it is kept as long as it asks.
    pub(super) fn afresh(self) -> Self {
        Self { forest: Arc::default(), ..self }
    }

    /// A desk that has backups made.
    #[must_use]
    pub fn with_copier(self, copier: Arc<dyn Copier>) -> Self {
        Self { copier: Some(copier), ..self }
    }

    /// This desk, with somebody who cares for the state directory.
    #[must_use]
    pub fn cared_for_by(self, caretaker: Arc<dyn Caretaker>) -> Self {
        Self { caretaker: Some(caretaker), ..self }
    }

    /// Answers a request; without an answer, the one who could give it has gone.
    pub async fn answer(&self, request: Request, to: &mpsc::Sender<Answer>) {
        let answer = match request {
            Request::Ping {} => Ok(Some(Answer::Pong {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").into(),
                writing_since: self.vitals().and_then(|vitals| vitals.writing_since()),
                stalled: self.vitals().map(|vitals| stalled(&vitals)).unwrap_or_default(),
            })),
            Request::RunsList { max } => {
                self.summaries(Read::Runs { session: None, max }).await.map(Answer::Runs).map(Some)
            }
            Request::RunsShow { run } => self.run(&run).await.map(Some),
            Request::SessionsList { max } => self.sessions(max).await.map(Answer::Sessions).map(Some),
            Request::SessionsShow { session, max } => self.session(&session, max).await.map(Some),
            Request::Journal { session, from } => self.journal(&session, from, to).await,
            Request::Tree { run } => self.tree(run.as_deref()).await.map(Some),
            Request::Stop { run, tree: false } => self.stop(self.reader.run(&run).await).await,
            Request::Stop { run, tree: true } => self.stop(self.reader.root(&run).await).await,
            Request::StopAll {} => self.stop_all().await,
            Request::Steer { run, text } => self.steer(&run, text).await,
            Request::BudgetShow { run } => self.budget(&run).await.map(Some),
            Request::BudgetAdd { run, by } => self.raise(&run, by).await,
            Request::ApprovalsList {} => self.reader.approvals().await.map(Answer::Approvals).map(Some),
            Request::ApprovalsDecide { call, verdict } => self.decide(&call, verdict).await,
            Request::BackupCreate { dir } => back_up(self.copier.as_deref(), dir, to).await,
            Request::ModelsList {} => self.reader.models().await.map(Answer::Models).map(Some),
            Request::ProvidersStatus {} => self.order(Order::Providers).await,
            Request::ProvidersReset { name } => self.order(Order::ResetProvider(name)).await,
            Request::Gc(sweep) => self.gc(sweep, to).await,
            Request::StoreFootprint {} => self.footprint(to).await,
        };
        if let Some(answer) = answer.unwrap_or_else(|fault| Some(Answer::Refused(fault))) {
            send(to, answer).await;
        }
    }

    async fn runs(&self, what: Read) -> Result<Vec<RunStatus>, Fault> {
        let mut rows = Vec::new();
        for row in self.reader.runs(what).await? {
            let row = self.reader.counted(row).await?;
            rows.push(self.status(row).await);
        }
        Ok(rows)
    }

    async fn summaries(&self, what: Read) -> Result<Vec<RunSummary>, Fault> {
        let mut summaries = Vec::new();
        for run in self.runs(what).await? {
            // A session that cannot be read must not hide the other runs.
            let accepted = match self.reader.accepted(&run).await {
                Ok(accepted) => Some(accepted),
                Err(fault) if fault.kind == FaultKind::Store => None,
                Err(fault) => return Err(fault),
            };
            let account = self.reader.account(run.id.into()).await?;
            summaries.push(RunSummary::new(run, accepted.as_ref(), account.as_ref()));
        }
        Ok(summaries)
    }

    async fn status(&self, row: RunRow) -> RunStatus {
        tree::status(row, self.vitals().as_ref()).await
    }

    async fn run(&self, id: &str) -> Result<Answer, Fault> {
        let row = self.reader.run(id).await?;
        if let Some(why) = self.reader.quarantined(row.session).await? {
            return Ok(Answer::Run(Box::new(RunDetail::unreadable(self.status(row).await, why))));
        }
        let row = self.reader.counted(row).await?;
        let accepted = match self.reader.accepted(&row).await {
            Err(fault) if fault.kind == FaultKind::Store => {
                return Ok(Answer::Run(Box::new(RunDetail::unreadable(self.status(row).await, fault.text))));
            }
            accepted => accepted?,
        };
        let said = self.reader.said(&row).await?;
        let bill = self.reader.bill(&row).await?;
        let (input, spec) = (accepted.input.to_string(), Some((*accepted.spec).clone()));
        let (cost, unpriced) = (bill.nano_usd(), bill.unpriced().to_vec());
        let (waits, row) = (self.waits(&row).await?, self.status(row).await);
        let unreadable = None;
        Ok(Answer::Run(Box::new(RunDetail { row, input, said, spec, cost, unpriced, waits, unreadable })))
    }

    fn vitals(&self) -> Option<Vitals> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a run waits for; nothing if it has ended, or if that cannot be read.
    async fn waits(&self, row: &RunRow) -> Result<Vec<Wait>, Fault> {
        if row.state == RunState::Ended || self.reader.quarantined(row.session).await?.is_some() {
            return Ok(Vec::new());
        }
        let waits = self.reader.waits(row.session).await?;
        Ok(match self.vitals() {
            Some(vitals) => vitals.waits(row.session, row.id, &waits).await,
            None => waits.waits_unowned(row.id, SystemClock::default().at()),
        })
    }

    async fn session(&self, id: &str, max: usize) -> Result<Answer, Fault> {
        let row = self.reader.session(id).await?;
        let runs = self.runs(Read::Runs { session: Some(row.id), max }).await?;
        let session = self.state(row).await?;
        let todo = match session.quarantined {
            None => self.reader.waits(session.row.id).await?.todo(),
            Some(_) => None,
        };
        Ok(Answer::Session(SessionDetail { session, runs, todo }))
    }

    async fn sessions(&self, max: usize) -> Result<Vec<SessionState>, Fault> {
        let mut sessions = Vec::new();
        for row in self.reader.sessions(Read::Sessions { max }).await? {
            sessions.push(self.state(row).await?);
        }
        Ok(sessions)
    }

    async fn state(&self, row: SessionRow) -> Result<SessionState, Fault> {
        let quarantined = self.reader.quarantined(row.id).await?;
        Ok(SessionState { row, quarantined })
    }

    async fn journal(&self, id: &str, from: Seq, to: &mpsc::Sender<Answer>) -> Result<Option<Answer>, Fault> {
        let session = self.reader.session(id).await?.id;
        let mut next = from;
        loop {
            let (page, damage) = self.reader.readable_page(session, next, PAGE).await?;
            let more = page.len() == PAGE;
            for (seq, record) in page {
                next = seq + 1;
                if !send(to, Answer::Record(shown(seq, &record)?)).await {
                    return Ok(None);
                }
            }
            if let Some(damage) = damage {
                return Err(damage);
            }
            if !more {
                return Ok(Some(Answer::End {}));
            }
        }
    }

    async fn tree(&self, id: Option<&str>) -> Result<Answer, Fault> {
        let runs = match id {
            Some(id) => vec![self.reader.run(id).await?],
            None => self.reader.runs(Read::OpenRuns).await?,
        };
        let vitals = self.vitals();
        let mut forest = self.forest.lock().await;
        forest.grow((&self.reader, vitals.as_ref()), runs).await.map(Answer::Tree)
    }

    async fn stop(&self, row: Result<RunRow, Fault>) -> Result<Option<Answer>, Fault> {
        self.order(Order::Stop(vec![row?])).await
    }

    async fn stop_all(&self) -> Result<Option<Answer>, Fault> {
        let open = self.reader.runs(Read::OpenRuns).await?;
        if open.is_empty() {
            return Ok(Some(Answer::Stopped(open)));
        }
        self.order(Order::Stop(open)).await
    }

    async fn steer(&self, id: &str, text: String) -> Result<Option<Answer>, Fault> {
        let run = Box::new(self.reader.run(id).await?);
        self.order(Order::Steer { run, text: text.into() }).await
    }

    async fn budget(&self, id: &str) -> Result<Answer, Fault> {
        let row = self.reader.run(id).await?;
        let mut budget = self.reader.budget(row).await?;
        budget.row = self.status(budget.row.row).await;
        Ok(Answer::Budget(Box::new(budget)))
    }

    async fn raise(&self, id: &str, by: Raised) -> Result<Option<Answer>, Fault> {
        let run = self.reader.run(id).await?.id;
        self.order(Order::Raise { run, by }).await
    }

    async fn decide(&self, call: &str, verdict: Verdict) -> Result<Option<Answer>, Fault> {
        let (_, call) = self.reader.asked(call).await?;
        self.order(Order::Decide { call, verdict }).await
    }

    async fn gc(&self, sweep: Sweep, to: &mpsc::Sender<Answer>) -> Result<Option<Answer>, Fault> {
        Ok(patiently(self.caretaker()?.sweep(sweep), to).await?.map(Answer::Swept))
    }

    async fn footprint(&self, to: &mpsc::Sender<Answer>) -> Result<Option<Answer>, Fault> {
        Ok(patiently(self.caretaker()?.footprint(), to).await?.map(Answer::Footprint))
    }

    fn caretaker(&self) -> Result<&dyn Caretaker, Fault> {
        let nobody = || Fault::new(FaultKind::Internal, "nobody cares for the state directory here");
        self.caretaker.as_deref().ok_or_else(nobody)
    }

    async fn order(&self, order: Order) -> Result<Option<Answer>, Fault> {
        let Some(orders) = &self.orders else { return Err(nobody(&order)) };
        let (reply, answer) = oneshot::channel();
        match orders.try_send(Ordered { order, reply }) {
            Ok(()) => Ok(answer.await.ok()),
            Err(TrySendError::Full(_)) => {
                let text = format!("{WAITING} orders wait already; try again in a moment");
                Err(Fault::new(FaultKind::Busy, text))
            }
            // Who could carry it out has gone.
            Err(TrySendError::Closed(_)) => Ok(None),
        }
    }
}

/// Why an order cannot be carried out where nothing runs.
fn stalled(vitals: &Vitals) -> Vec<Stalled> {
    let handlers = vitals.stalled_handlers().into_iter();
    let of = |handler: StalledHandler| Stalled {
        actor: handler.actor.to_owned(),
        session: handler.session,
        since: handler.since,
    };
    handlers.map(of).collect()
}

fn nobody(order: &Order) -> Fault {
    match order {
        Order::Steer { run, .. } => Fault::usage(match &run.ended {
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
        Order::Providers | Order::ResetProvider(_) => {
            Fault::usage("no provider is asked from this process: it only looks into the store")
        }
        Order::Stop(_) | Order::Decide { .. } | Order::Raise { .. } => {
            Fault::new(FaultKind::Internal, "nothing runs in this process")
        }
    }
}

/// Waits for what takes long, and says now and then that it goes on. Nothing if nobody listens any more; it goes on then.
async fn patiently<T>(
    work: impl Future<Output = Result<T, Fault>>,
    to: &mpsc::Sender<Answer>,
) -> Result<Option<T>, Fault> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done.map(Some),
            () = sleep(PULSE) => if !send(to, Answer::Underway {}).await { return Ok(None) },
        }
    }
}

/// Whether somebody still listens.
async fn send(to: &mpsc::Sender<Answer>, answer: Answer) -> bool {
    to.send(answer).await.is_ok()
}

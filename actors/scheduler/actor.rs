//! The actor: it keeps one task for each schedule, tells it of changes, and looks at the clocks.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::{task::JoinHandle, time::sleep};

use super::{SchedulerMsg, WorkerSignal, worker::ScheduleWorker};
use crate::{
    lock,
    model::{OccurrenceQuery, RunId, RunRow, ScheduleName, Timestamp},
    port::ReadError,
    supervisor::RuntimeParts,
};

/// The distance of the looks at the clock. A jump of the clock is noticed at the next one.
const TICK: Duration = Duration::from_mins(1);
/// A smaller difference between the clocks is no jump.
const MIN_JUMP_MS: i64 = 1_000;
/// A larger jump back is worth a warning: until the clock is there again, nothing is due.
const LONG_JUMP_MS: i64 = 86_400_000;
/// The pause before a schedule is served again whose task has panicked.
const RESTART: Duration = Duration::from_mins(1);

struct RunningWorker {
    number: u64,
    signal: Arc<WorkerSignal>,
    task: JoinHandle<()>,
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
pub(crate) struct SchedulerActor;

/// The tasks by schedule, and the clocks at the last look.
pub(crate) struct SchedulerState {
    parts: Arc<RuntimeParts>,
    workers: HashMap<ScheduleName, RunningWorker>,
    workers_started: u64,
    ticker: Option<JoinHandle<()>>,
    clocks: (Timestamp, u64),
}

impl Actor for SchedulerActor {
    type Msg = SchedulerMsg;
    type State = SchedulerState;
    type Arguments = Arc<RuntimeParts>;

    async fn pre_start(
        &self,
        me: ActorRef<SchedulerMsg>,
        parts: Arc<RuntimeParts>,
    ) -> Result<SchedulerState, ActorProcessingErr> {
        if parts.scheduler.ports().is_some() {
            me.cast(SchedulerMsg::Start)?;
        }
        let clocks = (parts.clock.at(), parts.clock.monotonic_ms());
        Ok(SchedulerState { parts, workers: HashMap::new(), workers_started: 0, ticker: None, clocks })
    }

    async fn handle(
        &self,
        me: ActorRef<SchedulerMsg>,
        message: SchedulerMsg,
        state: &mut SchedulerState,
    ) -> Result<(), ActorProcessingErr> {
        let _running = state.parts.handlers.enter("Scheduler", None);
        match message {
            SchedulerMsg::Start => state.start(&me).await?,
            SchedulerMsg::Changed(name) => state.wake(&me, name, None).await?,
            SchedulerMsg::Submitted(name, run) => state.wake(&me, name, Some(run)).await?,
            SchedulerMsg::Halt => {
                state.parts.scheduler.set_ports(None);
                state.workers.clear();
            }
            SchedulerMsg::WorkerEnded(name, number, has_panicked) => {
                state.on_worker_end(&me, name, number, has_panicked).await?;
            }
            SchedulerMsg::Tick => state.tick(),
            #[cfg(feature = "testkit")]
            SchedulerMsg::Inspect(inspection) => return inspection.run(state),
        }
        Ok(())
    }

    /// Waits for the tasks: each holds the store.
    async fn post_stop(
        &self,
        _me: ActorRef<SchedulerMsg>,
        state: &mut SchedulerState,
    ) -> Result<(), ActorProcessingErr> {
        for (_, mut worker) in state.workers.drain() {
            worker.task.abort();
            if let Err(error) = (&mut worker.task).await {
                tracing::trace!(%error, "the task of a schedule was ended");
            }
        }
        Ok(())
    }
}

impl Drop for SchedulerState {
    fn drop(&mut self) {
        self.ticker.iter().for_each(JoinHandle::abort);
    }
}

impl SchedulerState {
    /// Serves all schedules, and looks at the clock from now on.
    async fn start(&mut self, me: &ActorRef<SchedulerMsg>) -> Result<(), ReadError> {
        let parts = Arc::clone(&self.parts);
        let rows = parts.journal.rows();
        let names = rows.schedules().await?.into_iter().map(|schedule| schedule.name);
        let names = names.filter(|name| !self.workers.contains_key(name)).collect::<Vec<_>>();
        let last = rows.occurrences(OccurrenceQuery { max: 1, ..OccurrenceQuery::default() }).await?;
        if let Some(last) = last.first() {
            warn_of_jump(self.parts.clock.at(), last.recorded_at);
        }
        let open = rows.open_runs().await?;
        for name in names {
            self.serve(me, name, &open);
        }
        self.tick();
        let me = me.clone();
        let ticker = self.ticker.replace(tokio::spawn(async move {
            loop {
                sleep(TICK).await;
                if me.cast(SchedulerMsg::Tick).is_err() {
                    return;
                }
            }
        }));
        ticker.iter().for_each(JoinHandle::abort);
        Ok(())
    }

    /// Lets the task of a schedule look again; a new schedule gets one.
    async fn wake(
        &mut self,
        me: &ActorRef<SchedulerMsg>,
        name: ScheduleName,
        submitted: Option<RunId>,
    ) -> Result<(), ReadError> {
        match self.workers.get(&name) {
            Some(worker) => {
                lock(&worker.signal.submitted).extend(submitted);
                worker.signal.changed.notify_one();
            }
            None if self.parts.scheduler.ports().is_some() => {
                let open = self.parts.journal.rows().open_runs().await?;
                self.serve(me, name, &open);
            }
            None => {}
        }
        Ok(())
    }

    /// Starts the task of a schedule.
    fn serve(&mut self, me: &ActorRef<SchedulerMsg>, name: ScheduleName, open: &[RunRow]) {
        let Some(ports) = self.parts.scheduler.ports() else { return };
        self.workers_started += 1;
        let (number, signal) = (self.workers_started, Arc::<WorkerSignal>::default());
        let runs = open.iter().filter(|run| run.schedule.as_ref() == Some(&name)).map(|run| run.id).collect();
        *lock(&signal.submitted) = runs;
        let worker = ScheduleWorker::new(Arc::clone(&self.parts), ports, name.clone(), Arc::clone(&signal));
        let (me, of) = (me.clone(), name.clone());
        let task = tokio::spawn(async move {
            let has_panicked = worker.run_caught().await;
            if me.cast(SchedulerMsg::WorkerEnded(of, number, has_panicked)).is_err() {
                tracing::debug!("the task of a schedule has ended after the scheduler");
            }
        });
        self.workers.insert(name, RunningWorker { number, signal, task });
    }

    /// The task of a schedule has ended. It is started again if it has panicked, or if the schedule was created again.
    async fn on_worker_end(
        &mut self,
        me: &ActorRef<SchedulerMsg>,
        name: ScheduleName,
        number: u64,
        has_panicked: bool,
    ) -> Result<(), ReadError> {
        if self.workers.get(&name).is_none_or(|worker| worker.number != number) {
            return Ok(());
        }
        self.workers.remove(&name);
        self.parts.scheduler.set_status(&name, None);
        if !has_panicked {
            let is_there = self.parts.journal.rows().schedule(name.clone()).await?.is_some();
            return if is_there { self.wake(me, name, None).await } else { Ok(()) };
        }
        tracing::error!(schedule = %name, "the task of a schedule has panicked; it is started again");
        let me = me.clone();
        tokio::spawn(async move {
            sleep(RESTART).await;
            if me.cast(SchedulerMsg::Changed(name)).is_err() {
                tracing::debug!("the scheduler has ended");
            }
        });
        Ok(())
    }

    /// Notes that the actor works, and wakes all tasks if the clock has jumped: their sleeps do not see that.
    fn tick(&mut self) {
        let (at, ms) = (self.parts.clock.at(), self.parts.clock.monotonic_ms());
        *lock(&self.parts.scheduler.last_tick_ms) = Some(ms);
        let (before, before_ms) = std::mem::replace(&mut self.clocks, (at, ms));
        let expected = before.plus_ms(ms.saturating_sub(before_ms));
        if at.0.abs_diff(expected.0) < MIN_JUMP_MS.unsigned_abs() {
            return;
        }
        warn_of_jump(at, expected);
        for worker in self.workers.values() {
            worker.signal.changed.notify_one();
        }
    }
}

fn warn_of_jump(at: Timestamp, expected: Timestamp) {
    if at.0.saturating_add(LONG_JUMP_MS) < expected.0 {
        tracing::warn!(
            now = %at, before = %expected,
            "the clock went back by more than a day; no schedule is due until it is there again"
        );
    }
}

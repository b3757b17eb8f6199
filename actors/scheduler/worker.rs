//! The task of one schedule: it reads the row, decides the next step, and carries it out, one step after another. A slow
//! submission delays no other schedule.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{pending, select_all},
};
use tokio::{sync::oneshot, time::sleep};

use super::{ScheduleStatus, SchedulerPorts, WorkerSignal};
use crate::{
    lock,
    model::{
        Occurrence, OccurrenceId, OccurrenceQuery, OccurrenceState, OutboxMessage, RunId, RunState, Schedule,
        ScheduleName, ScheduleOutcome, ScheduleWrite, StopReason, Timestamp, Timing,
    },
    mutants::{Mutant, mutant_enabled},
    persistence,
    policy::schedule::{
        FailureStreak, RunUnderWay, ScheduleFacts, ScheduleStep, ScheduleTimes, failures_in_row, jitter_ms,
        next_step,
    },
    port::{OccurrenceError, ReadError},
    session::{InputReply, SessionMsg},
    supervisor::{RuntimeParts, SessionsMsg},
    turn::Input,
};

/// The pause after a failed read, or an error of the calendar.
const ERROR_PAUSE_MS: u64 = 60_000;
/// The first and the longest pause before an occurrence is submitted again.
const FIRST_PAUSE_MS: u64 = 1_000;
const MAX_PAUSE_MS: u64 = 60_000;

/// Why a task cannot go on as it is.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    /// It tries again later.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It tries again later.
    #[error("the times of the schedule cannot be computed: {0}")]
    Calendar(String),
    /// The store has failed: the runtime ends.
    #[error("{0}")]
    Store(String),
}

pub(super) struct ScheduleWorker {
    parts: Arc<RuntimeParts>,
    ports: SchedulerPorts,
    name: ScheduleName,
    signal: Arc<WorkerSignal>,
    under_way: Vec<RunUnderWay>,
    /// When its last run ended, and its failures; `None` until they are read.
    ended: Option<(Option<Timestamp>, FailureStreak)>,
    /// By which the failures were counted: the end of the last pause, and the limit.
    counted: (Option<Timestamp>, Option<u32>),
    /// The occurrence that could not be submitted, how often, and why.
    refused: Option<(Timestamp, u32, String)>,
}

impl ScheduleWorker {
    pub(super) fn new(
        parts: Arc<RuntimeParts>,
        ports: SchedulerPorts,
        name: ScheduleName,
        signal: Arc<WorkerSignal>,
    ) -> Self {
        Self {
            parts,
            ports,
            name,
            signal,
            under_way: Vec::new(),
            ended: None,
            counted: (None, None),
            refused: None,
        }
    }

    /// Serves the schedule until it is removed. True if that panicked.
    pub(super) async fn run_caught(self) -> bool {
        AssertUnwindSafe(self.run()).catch_unwind().await.is_err()
    }

    async fn run(mut self) {
        loop {
            match self.advance().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(WorkerError::Store(error)) => {
                    tracing::error!(schedule = %self.name, error, "the schedule is not served any more");
                    return pending().await;
                }
                Err(error) => {
                    tracing::error!(schedule = %self.name, %error, "the schedule is tried again in a minute");
                    self.wait(Some(self.now().plus_ms(ERROR_PAUSE_MS))).await;
                }
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.parts.clock.at()
    }

    /// Carries out the next step; false if the schedule is gone.
    async fn advance(&mut self) -> Result<bool, WorkerError> {
        let read = self.parts.journal.rows().schedule(self.name.clone()).await?;
        let Some(schedule) = read else { return Ok(false) };
        self.update_runs().await?;
        let is_paused = schedule.paused.is_some();
        let status = ScheduleStatus { is_paused, next: schedule.next.filter(|_| !is_paused) };
        self.parts.scheduler.set_status(&self.name, Some(status));
        match self.decide(&schedule).await? {
            ScheduleStep::Rest => self.wait(None).await,
            ScheduleStep::WaitUntil(at) => self.wait(Some(at)).await,
            ScheduleStep::WaitForEnd(until) => self.wait(until).await,
            ScheduleStep::Start(at) => self.start(&schedule, at).await?,
            ScheduleStep::Stop(run) => self.stop(run).await?,
            ScheduleStep::LeaveOut(rows, next) => self.leave_out(&schedule, rows, next).await?,
            ScheduleStep::Pause(pause, notices) => {
                tracing::warn!(schedule = %self.name, reason = %pause.reason, "the schedule is paused");
                self.write(Schedule { paused: Some(pause), ..schedule }, Vec::new(), notices).await?;
            }
        }
        Ok(true)
    }

    async fn decide(&mut self, schedule: &Schedule) -> Result<ScheduleStep, WorkerError> {
        // A resumption, or another limit, changes which failures count.
        let counted = (schedule.resumed_at, schedule.definition.rules.pause_after);
        if std::mem::replace(&mut self.counted, counted) != counted {
            self.ended = None;
        }
        let (last_end, failures) = match &self.ended {
            Some(ended) => ended.clone(),
            None => self.ended.insert(self.read_ended(schedule).await?).clone(),
        };
        let now = self.now();
        let due = schedule.next.filter(|next| *next <= now && schedule.paused.is_none());
        let has_row = match due {
            Some(at) => self.has_row(at).await?,
            None => false,
        };
        let refused = self.refused.as_ref().filter(|(at, ..)| Some(*at) == schedule.next);
        let facts = ScheduleFacts {
            schedule,
            now,
            under_way: &self.under_way,
            last_end,
            failures: &failures,
            has_row,
            jitter: if mutant_enabled(Mutant::RandomJitter) { random_jitter } else { jitter_ms },
            last_error: refused.map(|(.., error)| error.as_str()),
        };
        let calendar = &*self.ports.calendar;
        let next = |timing: &Timing, after| calendar.next(timing, after);
        next_step(facts, &next).map_err(WorkerError::Calendar)
    }

    /// Whether the occurrence has a row. A run that it names may be one that an earlier task has submitted.
    async fn has_row(&mut self, at: Timestamp) -> Result<bool, WorkerError> {
        let id = OccurrenceId { schedule: self.name.clone(), at };
        let row = self.parts.journal.rows().occurrence(id).await?;
        if let Some(run) = row.as_ref().and_then(|row| row.state.run()) {
            self.add_run(run).await?;
        }
        Ok(row.is_some())
    }

    /// The time at which the last run ended, and the failures in a row.
    async fn read_ended(
        &self,
        schedule: &Schedule,
    ) -> Result<(Option<Timestamp>, FailureStreak), WorkerError> {
        let rows = self.parts.journal.rows();
        let most = schedule.definition.rules.pause_after.unwrap_or(0);
        // Runs under way are among them.
        let max = usize::try_from(most).unwrap_or(0) + self.under_way.len() + 1;
        let query = OccurrenceQuery { with_run: true, ..OccurrenceQuery::of(self.name.clone(), max) };
        let mut newest = Vec::new();
        for row in rows.occurrences(query).await? {
            if let Some(run) = row.state.run()
                && let Some(run) = rows.run(run).await?
            {
                newest.push((row.id.at, run));
            }
        }
        let last_end = newest.iter().filter_map(|(_, run)| run.ended_at).max();
        let counts = |at: Timestamp| schedule.resumed_at.is_none_or(|resumed| at >= resumed);
        let counted = newest.into_iter().filter(|(at, _)| counts(*at)).map(|(_, run)| run);
        Ok((last_end, failures_in_row(counted)))
    }

    /// Adds runs that others have submitted, and removes those that have ended.
    async fn update_runs(&mut self) -> Result<(), WorkerError> {
        let submitted = std::mem::take(&mut *lock(&self.signal.submitted));
        for run in submitted {
            self.add_run(run).await?;
        }
        for known in self.under_way.clone() {
            let row = self.parts.journal.rows().run(known.run).await?;
            if row.is_none_or(|row| row.state == RunState::Ended) {
                self.under_way.retain(|other| other.run != known.run);
                self.ended = None;
            }
        }
        Ok(())
    }

    async fn add_run(&mut self, run: RunId) -> Result<(), WorkerError> {
        if self.under_way.iter().any(|known| known.run == run) {
            return Ok(());
        }
        let row = self.parts.journal.rows().run(run).await?;
        self.ended = None;
        if let Some(row) = row.filter(|row| row.state != RunState::Ended) {
            let accepted_at = row.accepted_at;
            self.under_way.push(RunUnderWay { run, accepted_at, is_stopping: false });
        }
        Ok(())
    }

    /// Waits until the time, the end of a run, or a change. The clock is looked at again after each sleep.
    async fn wait(&self, until: Option<Timestamp>) {
        let hub = &self.parts.hub;
        let waiters: Vec<_> = self.under_way.iter().map(|run| hub.watch_run_end(run.run)).collect();
        // A run may have ended before it was watched.
        for known in &self.under_way {
            let row = self.parts.journal.rows().run(known.run).await;
            if row.is_ok_and(|row| row.is_none_or(|row| row.state == RunState::Ended)) {
                return;
            }
        }
        let ended = async {
            match waiters.is_empty() {
                true => pending().await,
                false => drop(select_all(waiters.into_iter().map(|waiter| Box::pin(waiter.wait()))).await),
            }
        };
        tokio::select! {
            () = ended => {}
            () = self.sleep_until(until) => {}
            () = self.signal.changed.notified() => {}
        }
    }

    async fn sleep_until(&self, until: Option<Timestamp>) {
        let Some(until) = until else { return pending().await };
        loop {
            let ms = until.ms_since(self.now());
            if ms == 0 {
                return;
            }
            sleep(Duration::from_millis(ms)).await;
        }
    }

    /// Submits the run of an occurrence, then writes the next time.
    async fn start(&mut self, schedule: &Schedule, at: Timestamp) -> Result<(), WorkerError> {
        let id = OccurrenceId { schedule: self.name.clone(), at };
        if mutant_enabled(Mutant::AdvanceEarly) {
            self.write_next(schedule, Vec::new(), self.after(schedule, at)?).await?;
        }
        let submitted = self.ports.submitter.submit(id.clone(), schedule.definition.task.clone()).await;
        let mut left_out = Vec::new();
        match submitted {
            Ok(run) => self.add_run(run).await?,
            Err(OccurrenceError::LeftOut) => {}
            Err(OccurrenceError::Never(reason)) => {
                let state = OccurrenceState::Missed { reason: reason.into() };
                left_out.push(Occurrence { id, state, recorded_at: self.now(), further: None });
            }
            Err(OccurrenceError::NotNow(error)) => {
                self.on_not_now(at, error).await;
                return Ok(());
            }
        }
        let next = self.after(schedule, at)?;
        self.leave_out(schedule, left_out, next).await
    }

    /// The occurrence stays due. It is tried again after a pause that grows, and becomes late by the rules.
    async fn on_not_now(&mut self, at: Timestamp, error: String) {
        let tries = self.refused.as_ref().filter(|(of, ..)| *of == at).map_or(0, |(_, tries, _)| *tries);
        tracing::warn!(schedule = %self.name, %at, error, "the run of an occurrence cannot be submitted now");
        self.refused = Some((at, tries.saturating_add(1), error));
        let pause = FIRST_PAUSE_MS.saturating_mul(1 << tries.min(10)).min(MAX_PAUSE_MS);
        self.wait(Some(self.now().plus_ms(pause))).await;
    }

    fn after(&self, schedule: &Schedule, at: Timestamp) -> Result<Option<Timestamp>, WorkerError> {
        let next = |timing: &Timing, after| self.ports.calendar.next(timing, after);
        let times = ScheduleTimes::new(&schedule.name, &schedule.definition, &next);
        times.after(at).map_err(WorkerError::Calendar)
    }

    /// Writes the occurrences that are left out, with the next time.
    async fn leave_out(
        &mut self,
        schedule: &Schedule,
        rows: Vec<Occurrence>,
        next: Option<Timestamp>,
    ) -> Result<(), WorkerError> {
        let first = rows.first().map(|row| row.id.at);
        for row in &rows {
            let (state, further) = (&row.state, row.further.map_or(0, |further| further.count));
            tracing::info!(schedule = %self.name, at = %row.id.at, ?state, further, "an occurrence is left out");
        }
        self.write_next(schedule, rows, next).await?;
        // Its run may have been accepted meanwhile, if an earlier task has submitted it.
        if let Some(at) = first {
            self.has_row(at).await?;
        }
        Ok(())
    }

    async fn write_next(
        &self,
        schedule: &Schedule,
        left_out: Vec<Occurrence>,
        next: Option<Timestamp>,
    ) -> Result<(), WorkerError> {
        let changed = Schedule { next, ..schedule.clone() };
        self.write(changed, left_out, Vec::new()).await
    }

    /// Writes the schedule. If it was changed since it was read, nothing is written, and the next look decides again.
    async fn write(
        &self,
        schedule: Schedule,
        left_out: Vec<Occurrence>,
        notices: Vec<OutboxMessage>,
    ) -> Result<(), WorkerError> {
        let write = ScheduleWrite::over(schedule, left_out, notices);
        match persistence::write_schedule(&self.parts.persistence, write).await {
            Ok(Ok(ScheduleOutcome::Written | ScheduleOutcome::Changed(_) | ScheduleOutcome::TooMany)) => {
                Ok(())
            }
            Ok(Err(refusal)) => Err(WorkerError::Store(refusal.to_string())),
            Err(error) => Err(WorkerError::Store(error.to_string())),
        }
    }

    /// Stops a run for a later occurrence. It is told again after a pause if its session did not answer.
    async fn stop(&mut self, run: RunId) -> Result<(), WorkerError> {
        let Some(row) = self.parts.journal.rows().run(run).await? else { return Ok(()) };
        let (sender, stopped) = oneshot::channel();
        let input = Input::Stop { run: Some(run), reason: StopReason::Overlap };
        let command = SessionMsg::Command { input, reply: InputReply::Stop(sender.into()), suspended: None };
        let is_sent = self.parts.sessions.cast(SessionsMsg::Deliver(row.session, None, command)).is_ok();
        if is_sent && stopped.await.is_ok() {
            let known = self.under_way.iter_mut().filter(|known| known.run == run);
            known.for_each(|known| known.is_stopping = true);
        } else {
            self.wait(Some(self.now().plus_ms(FIRST_PAUSE_MS))).await;
        }
        Ok(())
    }
}

/// The jitter of a mutant: another one each time.
fn random_jitter(_: &ScheduleName, _: Timestamp, most: u64) -> u64 {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let drawn = DRAWN.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    (drawn >> 7) % most.saturating_add(1).max(1)
}

//! Decides when each session is resumed: all at once, or on probation, one at a time after repeated crashes of the
//! process. It drives the trials and their backoffs; `crash_loop/` has the rules.

use std::{cmp::Reverse, collections::VecDeque, future, sync::Arc, time::Duration};

use hermod_actors::model::{RunId, SessionId};
use tokio::time::{Instant, sleep_until};

use super::resumed_runs::{ResumeEvent, ResumedRuns};
use crate::{
    control::StoreReader,
    crash_loop::{CrashHistoryFile, MAX_DEATH_INTERVAL_MS, MIN_UPTIME_MS, Trial},
    host::{crash_trials::first_trial, error::HostError, notes::NoteSink},
};

/// The sessions still to resume, and on probation the run on trial. A trial is over when its run has made progress,
/// has ended, or is parked. It is also over after a limit, because the run then does not cause the crashes.
#[derive(Debug)]
pub(super) struct Probation {
    waiting: VecDeque<SessionId>,
    phase: ProbationPhase,
    notes: Arc<dyn NoteSink>,
}

#[derive(Debug)]
enum ProbationPhase {
    /// All sessions are resumed at once.
    AllAtOnce,
    /// The next session is to be tried.
    BetweenTrials,
    /// The session is tried after a backoff until this instant.
    BackingOff(SessionId, Trial, Instant),
    /// This run is on trial.
    Trying(ActiveTrial),
}

#[derive(Debug)]
struct ActiveTrial {
    trial: Trial,
    since: Instant,
    is_over: bool,
}

impl Probation {
    /// Orders the sessions: by suspicion of having caused the crashes, then by acceptance. The crash history decides
    /// whether all are resumed at once.
    pub(super) fn new(
        runs: &ResumedRuns<'_>,
        crash_history: &CrashHistoryFile,
        notes: &Arc<dyn NoteSink>,
    ) -> Self {
        let mut sessions: Vec<(RunId, SessionId)> =
            runs.sessions().into_iter().map(|(session, first)| (first, session)).collect();
        sessions.sort_by_key(|(run, _)| (Reverse(crash_history.suspicion_rank(*run)), *run));
        let phase = match crash_history.probation() {
            None => ProbationPhase::AllAtOnce,
            Some(deaths) => {
                let n = sessions.len();
                notes.note(&format!(
                    "probation the process has died {deaths} times within a minute; what is unfinished ({n}) goes on one \
                     at a time"
                ));
                ProbationPhase::BetweenTrials
            }
        };
        Self {
            waiting: sessions.into_iter().map(|(_, session)| session).collect(),
            phase,
            notes: Arc::clone(notes),
        }
    }

    /// True if every session is resumed and no trial is in progress.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty()
            && !matches!(self.phase, ProbationPhase::Trying(_) | ProbationPhase::BackingOff(..))
    }

    /// Resumes the sessions that may be resumed now.
    pub(super) async fn advance(
        &mut self,
        runs: &mut ResumedRuns<'_>,
        reader: &StoreReader,
        crash_history: &mut CrashHistoryFile,
    ) -> Result<(), HostError> {
        if let ProbationPhase::Trying(active) = &self.phase
            && (active.is_over || runs.is_ended_or_parked(active.trial.run))
        {
            let run = active.trial.run;
            crash_history.clear(run);
            crash_history.set_trial(None);
            self.phase = ProbationPhase::BetweenTrials;
            // The last progress may be the run's end; its row is refreshed so that the next run is tried alone.
            runs.refresh_run(run).await?;
        }
        if let ProbationPhase::AllAtOnce = self.phase {
            while let Some(session) = self.waiting.pop_front() {
                runs.revive(session)?;
            }
        }
        while let ProbationPhase::BetweenTrials = self.phase {
            let Some(session) = self.waiting.pop_front() else {
                self.notes.note("probation is over: all go on");
                self.phase = ProbationPhase::AllAtOnce;
                break;
            };
            self.try_session(session, runs, reader, crash_history).await?;
        }
        Ok(())
    }

    async fn try_session(
        &mut self,
        session: SessionId,
        runs: &mut ResumedRuns<'_>,
        reader: &StoreReader,
        crash_history: &mut CrashHistoryFile,
    ) -> Result<(), HostError> {
        let open = runs.refresh_session(session).await?;
        if open.is_empty() {
            return Ok(());
        }
        let trial = first_trial(reader, &open).await;
        let Some(trial) = trial.filter(|trial| !runs.is_ended_or_parked(trial.run)) else {
            return runs.revive(session);
        };
        let trial = Trial { is_alone: runs.has_no_revived_running(), ..trial };
        let Some(backoff) = crash_history.backoff_before(&trial).filter(|_| trial.is_alone) else {
            return self.start_trial((session, trial), runs, crash_history);
        };
        crash_history.start_backoff();
        let text = format!(
            "probation waits whether the process dies without it, for {:.1} s",
            backoff.as_secs_f64()
        );
        runs.show_trial(trial.run, &text);
        self.phase = ProbationPhase::BackingOff(session, trial, Instant::now() + backoff);
        Ok(())
    }

    fn start_trial(
        &mut self,
        (session, trial): (SessionId, Trial),
        runs: &mut ResumedRuns<'_>,
        crash_history: &mut CrashHistoryFile,
    ) -> Result<(), HostError> {
        crash_history.set_trial(Some(trial));
        let how = if trial.is_alone { "goes on alone" } else { "goes on beside those before it" };
        runs.show_trial(trial.run, &format!("probation {how}"));
        self.phase = ProbationPhase::Trying(ActiveTrial { trial, since: Instant::now(), is_over: false });
        runs.revive(session)
    }

    /// Handles the next event of the runs, or the timer. If it is dropped, at most the refresh of a run's row is lost.
    pub(super) async fn next_step(
        &mut self,
        runs: &mut ResumedRuns<'_>,
        crash_history: &mut CrashHistoryFile,
    ) -> Result<(), HostError> {
        tokio::select! {
            biased;
            event = runs.next_event() => {
                runs.on_event(&event).await?;
                self.on_event(&event);
            }
            () = self.wait_for_timer() => self.on_timer(runs, crash_history)?,
        }
        Ok(())
    }

    /// Ends the trial when its run makes progress beyond the step at which the trial began.
    fn on_event(&mut self, event: &ResumeEvent) {
        let ProbationPhase::Trying(ActiveTrial { trial, is_over, .. }) = &mut self.phase else { return };
        if let ResumeEvent::Recorded(_, seq, record) = event
            && *seq > trial.step
            && record.body.run() == Some(trial.run)
            && record.body.is_progress()
        {
            *is_over = true;
        }
    }

    /// Resolves when the backoff is over, or when the trial reaches its minimum uptime or its limit; else never.
    async fn wait_for_timer(&self) {
        match &self.phase {
            ProbationPhase::Trying(ActiveTrial { trial, since, .. }) => {
                let limit = if trial.has_min_uptime { MAX_DEATH_INTERVAL_MS } else { MIN_UPTIME_MS };
                sleep_until(*since + Duration::from_millis(limit)).await;
            }
            ProbationPhase::BackingOff(_, _, until) => sleep_until(*until).await,
            ProbationPhase::AllAtOnce | ProbationPhase::BetweenTrials => future::pending().await,
        }
    }

    /// Handles the timer of [`Probation::wait_for_timer`].
    fn on_timer(
        &mut self,
        runs: &mut ResumedRuns<'_>,
        crash_history: &mut CrashHistoryFile,
    ) -> Result<(), HostError> {
        match &mut self.phase {
            ProbationPhase::BackingOff(session, trial, _) => {
                let resumed = (*session, Trial { has_min_uptime: true, ..*trial });
                return self.start_trial(resumed, runs, crash_history);
            }
            ProbationPhase::Trying(ActiveTrial { trial, .. }) if !trial.has_min_uptime => {
                trial.has_min_uptime = true;
                crash_history.mark_long_trial();
            }
            ProbationPhase::Trying(active) => active.is_over = true,
            ProbationPhase::AllAtOnce | ProbationPhase::BetweenTrials => {}
        }
        Ok(())
    }
}

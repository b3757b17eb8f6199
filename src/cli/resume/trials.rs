use std::{cmp::Reverse, collections::VecDeque, future, time::Duration};

use hermod_actors::model::{RunId, Seq, SessionId};
use tokio::time::{Instant, sleep_until};

use super::crowd::{Crowd, Heard};
use crate::{
    cli::{exit::Failure, hold, output::say, terminal::Tone},
    control::Reader,
    deaths::{Keeper, LONG_MS, SLOWEST_MS, Start, Trial, is_step},
};

/// Which sessions are still to go on, and on probation: who is tried. A trial is over when the run has made a step, has
/// ended, is parked, or has done no harm for so long that it is not what the process dies of.
#[derive(Debug)]
pub(super) struct Trials {
    waiting: VecDeque<SessionId>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// All go on at once.
    Free,
    /// The next one is to be tried.
    Between,
    /// It is to be tried when the process has rested until then.
    Resting(SessionId, Trial, Instant),
    /// This one is.
    Trying(Tried),
}

#[derive(Debug)]
struct Tried {
    trial: Trial,
    since: Instant,
    is_over: bool,
}

impl Trials {
    /// All at once, or on probation those first of whom the process may have died, else in the order of their acceptance.
    pub(super) fn new(crowd: &Crowd<'_>, deaths: &Keeper) -> Self {
        let mut sessions: Vec<(RunId, SessionId)> =
            crowd.sessions().into_iter().map(|(session, first)| (first, session)).collect();
        sessions.sort_by_key(|(run, _)| (Reverse(deaths.suspicion(*run)), *run));
        let phase = match deaths.start() {
            Start::Ordinary => Phase::Free,
            Start::Probation(died) => {
                let n = sessions.len();
                say(format!(
                    "probation the process has died {died} times within a minute; what is unfinished ({n}) goes on one \
                     at a time"
                ));
                Phase::Between
            }
        };
        Self { waiting: sessions.into_iter().map(|(_, session)| session).collect(), phase }
    }

    /// Whether every session goes on, and none is tried.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty() && !matches!(self.phase, Phase::Trying(_) | Phase::Resting(..))
    }

    /// Lets go on who may.
    pub(super) async fn go_on(
        &mut self,
        crowd: &mut Crowd<'_>,
        (reader, deaths): (&Reader, &mut Keeper),
    ) -> Result<(), Failure> {
        if let Phase::Trying(tried) = &self.phase
            && (tried.is_over || crowd.has_settled(tried.trial.run))
        {
            let run = tried.trial.run;
            deaths.clear(run);
            deaths.try_out(None);
            self.phase = Phase::Between;
            // Its last step may be its end, which comes with it: then the next one is alone.
            crowd.look_at(run).await?;
        }
        if let Phase::Free = self.phase {
            while let Some(session) = self.waiting.pop_front() {
                crowd.revive(session)?;
            }
        }
        while let Phase::Between = self.phase {
            let Some(session) = self.waiting.pop_front() else {
                say("probation is over: all go on");
                self.phase = Phase::Free;
                break;
            };
            self.try_out(session, crowd, (reader, deaths)).await?;
        }
        Ok(())
    }

    async fn try_out(
        &mut self,
        session: SessionId,
        crowd: &mut Crowd<'_>,
        (reader, deaths): (&Reader, &mut Keeper),
    ) -> Result<(), Failure> {
        let open = crowd.look_into(session).await?;
        if open.is_empty() {
            return Ok(());
        }
        let trial = hold::first_trial(reader, &open).await;
        let Some(trial) = trial.filter(|trial| !crowd.has_settled(trial.run)) else {
            return crowd.revive(session);
        };
        let trial = Trial { alone: crowd.is_quiet(), ..trial };
        let Some(rest) = deaths.rest_before(&trial).filter(|_| trial.alone) else {
            return self.begin((session, trial), crowd, deaths);
        };
        deaths.rest();
        let text =
            format!("probation waits whether the process dies without it, for {:.1} s", rest.as_secs_f64());
        crowd.tell(trial.run, Tone::Quiet, &text);
        self.phase = Phase::Resting(session, trial, Instant::now() + rest);
        Ok(())
    }

    fn begin(
        &mut self,
        (session, trial): (SessionId, Trial),
        crowd: &mut Crowd<'_>,
        deaths: &mut Keeper,
    ) -> Result<(), Failure> {
        deaths.try_out(Some(trial));
        let how = if trial.alone { "goes on alone" } else { "goes on beside those before it" };
        crowd.tell(trial.run, Tone::Quiet, &format!("probation {how}"));
        self.phase = Phase::Trying(Tried { trial, since: Instant::now(), is_over: false });
        crowd.revive(session)
    }

    /// Takes in what was heard: a step of the run that is tried is all that it takes.
    pub(super) fn heard(&mut self, heard: &Heard) {
        let Phase::Trying(Tried { trial, is_over, .. }) = &mut self.phase else { return };
        if let Heard::Recorded(_, seq, record) = heard
            && is_beyond(trial, *seq)
            && record.body.run() == Some(trial.run)
            && is_step(&record.body)
        {
            *is_over = true;
        }
    }

    /// Resolves when the rest is over, or when the trial has lasted long, or too long; else never.
    pub(super) async fn time(&self) {
        match &self.phase {
            Phase::Trying(Tried { trial, since, .. }) => {
                let limit = if trial.long { SLOWEST_MS } else { LONG_MS };
                sleep_until(*since + Duration::from_millis(limit)).await;
            }
            Phase::Resting(_, _, until) => sleep_until(*until).await,
            Phase::Free | Phase::Between => future::pending().await,
        }
    }

    /// What [`Trials::time`] waited for has come.
    pub(super) fn rang(&mut self, crowd: &mut Crowd<'_>, deaths: &mut Keeper) -> Result<(), Failure> {
        match &mut self.phase {
            Phase::Resting(session, trial, _) => {
                let begun = (*session, Trial { long: true, ..*trial });
                return self.begin(begun, crowd, deaths);
            }
            Phase::Trying(Tried { trial, .. }) if !trial.long => {
                trial.long = true;
                deaths.long();
            }
            Phase::Trying(tried) => tried.is_over = true,
            Phase::Free | Phase::Between => {}
        }
        Ok(())
    }
}

/// Whether a record came behind the step at which the trial began.
const fn is_beyond(trial: &Trial, seq: Seq) -> bool {
    seq > trial.step
}

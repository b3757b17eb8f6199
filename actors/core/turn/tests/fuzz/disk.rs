//! The outcome of an append: it is durable, or refused, or under way when the process crashes. Also the checks of a
//! commit and of a replay.

use std::sync::Arc;

use super::{
    chance::Chance,
    hold,
    world::{SESSION, World},
};
use crate::{
    journal::{Append, IndexRow},
    model::{Body, CallStatus, Durable, RetryReason, RunCounts, RunRow, RunState, decode, encode},
    turn::{Input, Turn},
};

impl World {
    /// The disk answers.
    pub(super) fn written(&mut self, chance: &mut Chance) -> Result<(), String> {
        let Some((decision, inputs)) = self.flight.take() else { return Ok(()) };
        if let Some(refusal) = self.watch.post(&decision.ledger)? {
            self.tell(|| format!("  refused: {refusal}"));
            self.granted.clear();
            self.refused = true;
            self.waiting = std::iter::once(Input::BudgetRefused(refusal))
                .chain(inputs)
                .chain(self.waiting.drain(..))
                .collect();
        } else {
            self.tell(|| "  durable".into());
            self.commit(&decision)?;
            self.watch.is_settled(&inputs)?;
            self.begin_due()?;
        }
        self.decide(chance)
    }

    fn commit(&mut self, decision: &Append) -> Result<(), String> {
        self.first = None;
        let since = self.watch.last() + 1;
        for record in &decision.records {
            self.tally.record(&record.body);
            let stored = encode(record);
            hold!(decode(&stored).as_ref() == Ok(&**record), "{record:?} is stored as another");
            let record = Durable::mark_durable(Arc::clone(record));
            self.agrees_with_outside(&record.body, since)?;
            self.turn.apply(&record);
            self.watch
                .record(&record, &self.turn)
                .map_err(|why| format!("{}: {why}", record.body.kind().name()))?;
            self.journal.push(record);
        }
        if matches!(decision.records.first().map(|record| &record.body), Some(Body::SessionRevived(_))) {
            let at = decision.records[0].at;
            let expired =
                self.turn.open_approvals().into_iter().find(|approval| approval.request.expires_at <= at);
            hold!(expired.is_none(), "revived, and still open is {expired:?}");
        }
        let taken = self.stubs.appended(decision)?;
        self.watch.family.appended(decision, &taken)?;
        self.rows_agree(&decision.index)?;
        self.outbox_agrees(decision)?;
        self.watch.appended((&decision.ledger, &decision.index), &self.turn)
    }

    /// Checks that a run's index row counts the run's records up to its own, and that the row of a parked run has the
    /// approvals.
    fn rows_agree(&mut self, index: &[IndexRow]) -> Result<(), String> {
        for row in index {
            let IndexRow::Run(row) = row else { continue };
            if row.session != SESSION || row.state == RunState::Ended {
                continue;
            }
            let last = usize::try_from(row.last).unwrap_or(usize::MAX);
            let mut counts = RunCounts::default();
            let mut folded = Turn::empty(SESSION);
            for record in self.journal.iter().take(last) {
                folded.apply(record);
                if record.body.run() == Some(row.id) {
                    counts.take(&record.body);
                }
            }
            hold!(row.counts.unwrap_or_default() == counts, "{row:?}, and its records count {counts:?}");
            let approvals = (row.state == RunState::Parked).then(|| folded.open_approvals());
            hold!(row.approvals == approvals, "{row:?}, and its records ask {approvals:?}");
            if row.state != RunState::Queued {
                self.row = Some(RunRow::clone(row));
            }
        }
        let approvals = self.turn.parked_run().map(|_| self.turn.open_approvals());
        let known = self.row.as_ref().and_then(|row| row.approvals.clone());
        hold!(approvals.is_none() || approvals == known, "asked is {approvals:?}, and the row has {known:?}");
        Ok(())
    }

    /// Checks that a record about a tool call agrees with what the tool has done.
    fn agrees_with_outside(&self, body: &Body, since: u64) -> Result<(), String> {
        let (call, attempt, should_be_there) = match body {
            Body::CallEnded(ended) if self.watch.family.has(ended.call) => return Ok(()),
            Body::CallEnded(ended) if ended.attempt > 0 => match ended.end.status {
                CallStatus::Ok => (ended.call, ended.attempt, true),
                CallStatus::NotStarted => {
                    let here = self.watch.started_since(ended.call, since);
                    hold!(here, "{ended:?} may have begun");
                    return Ok(());
                }
                CallStatus::Error | CallStatus::Stopped | CallStatus::InDoubt => return Ok(()),
            },
            Body::CallLost(lost) if lost.reason == RetryReason::NeverStarted => {
                (lost.call, lost.attempt, false)
            }
            _ => return Ok(()),
        };
        let is_there = self.outside.has(call, attempt);
        hold!(
            is_there == should_be_there,
            "{body:?}, and it has {}begun",
            if is_there { "" } else { "not " }
        );
        Ok(())
    }

    /// The process crashes, or the session's actor. An append under way is durable or lost. The next incarnation
    /// replays the journal, which must give the same state.
    pub(super) fn die(&mut self, chance: &mut Chance) -> Result<(), String> {
        if let Some((decision, inputs)) = self.flight.take()
            && chance.one_in(2)
            && self.watch.post(&decision.ledger)?.is_none()
        {
            self.tell(|| "  durable, and nobody is told".into());
            self.commit(&decision)?;
            self.watch.is_settled(&inputs)?;
        }
        let reboots = chance.one_in(8);
        self.boot += u64::from(reboots);
        self.tell(|| format!("died{}", if reboots { ", and the machine starts anew" } else { "" }));
        self.outside.die(reboots, chance);
        self.stubs.die();
        self.tasks.clear();
        self.waiting.clear();
        self.stale.clear();
        self.granted.clear();
        (self.refused, self.rests) = (false, false);
        let mut folded = Turn::empty(SESSION);
        self.journal.iter().for_each(|record| folded.apply(record));
        folded.set_store_limits(self.turn.store_limits);
        folded.set_begin_rules(self.turn.begin_rules);
        self.is_alike(&folded)?;
        self.turn = folded;
        self.now.active_ms = self.turn.active_ms;
        self.now.at = self.now.at.plus_ms(chance.pick(&[0, 1, 1_000, 60_000]));
        self.begin_life();
        Ok(())
    }

    /// Checks that the replayed state equals the live one.
    fn is_alike(&self, folded: &Turn) -> Result<(), String> {
        let (live, now) = (&self.turn, self.now);
        hold!(live.due(now) == folded.due(now), "{:?} was due, and {:?} is", live.due(now), folded.due(now));
        hold!(live.request_hash() == folded.request_hash(), "the journal folds to another view");
        hold!(live.open_approvals() == folded.open_approvals(), "the journal folds to other questions");
        hold!(live.parked_run() == folded.parked_run(), "the journal folds to another state");
        if self.mood.is_thorough {
            let (live, again) = (format!("{live:?}"), format!("{folded:?}"));
            hold!(live == again, "the journal folds to\n{again}\nand not to\n{live}");
            self.shown_as_it_is(folded)?;
        }
        Ok(())
    }
}

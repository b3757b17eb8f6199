//! Counts messages to sessions, from the appends that are committed: those that were accepted, and what became of them.
//! It knows the messages of this process alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hermod_actors::{
    model::{Body, MessagePlace, MessageRow, Outcome, Record, RunId, RunRow, RunState},
    port::{Append, IndexRow},
};

/// The messages of this process. A clone has the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageCounts(Arc<Mutex<CountedMessages>>);

/// What is counted.
#[derive(Debug, Clone, Default)]
pub(super) struct CountedMessages {
    /// Accepted messages, by what they did: by mode.
    pub(super) accepted: BTreeMap<&'static str, u64>,
    /// Messages with a final fate: `answered`, `dropped` at the cap, or `failed` with their run.
    pub(super) ended: BTreeMap<&'static str, u64>,
    /// Messages that no model has read.
    queued: BTreeSet<RunId>,
    /// The messages that unfinished runs read, by run.
    read: HashMap<RunId, u64>,
}

/// What an append changes, taken before it is committed.
#[derive(Debug)]
pub(super) struct MessageChanges {
    records: Vec<Arc<Record>>,
    rows: Vec<MessageRow>,
    runs: Vec<(RunId, RunState)>,
}

impl MessageChanges {
    /// The changes of an append; `None` if it is about no message and ends no run.
    pub(super) fn of(append: &Append) -> Option<Self> {
        let is_counted = |record: &&Arc<Record>| {
            if let Body::RunAccepted(accepted) = &record.body {
                return accepted.queueing.is_some();
            }
            matches!(
                record.body,
                Body::MessageSteered(_)
                    | Body::MessageCollected(_)
                    | Body::MessageDropped(_)
                    | Body::RunEnded(_)
            )
        };
        let records = append.records.iter().filter(is_counted).cloned().collect();
        let (mut rows, mut runs) = (Vec::new(), Vec::new());
        for row in &append.index {
            match row {
                IndexRow::Message(row) => rows.push(row.clone()),
                IndexRow::Run(row) => runs.push(run_state(row)),
                IndexRow::Session(_) | IndexRow::Model(_) | IndexRow::Outbox(_) | IndexRow::Occurrence(_) => {
                }
            }
        }
        let changes = Self { records, rows, runs };
        (!changes.records.is_empty() || !changes.rows.is_empty() || !changes.runs.is_empty())
            .then_some(changes)
    }
}

const fn run_state(row: &RunRow) -> (RunId, RunState) {
    (row.id, row.state)
}

impl MessageCounts {
    /// Takes over what a committed append has changed.
    pub(super) fn take(&self, changes: &MessageChanges) {
        self.lock().take(changes);
    }

    /// The counts until now.
    pub(super) fn get(&self) -> CountedMessages {
        self.lock().clone()
    }

    /// Ignores poisoning: no update panics.
    fn lock(&self) -> MutexGuard<'_, CountedMessages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedMessages {
    /// Number of messages that no model has read.
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds bring no message")]
    fn take(&mut self, MessageChanges { records, rows, runs }: &MessageChanges) {
        for record in records {
            match &record.body {
                Body::RunAccepted(accepted) => {
                    if let Some(queueing) = &accepted.queueing {
                        self.accept(queueing.mode.name(), accepted.run);
                    }
                }
                Body::MessageSteered(steered) => self.accept("steer", steered.followup_run),
                Body::MessageCollected(collected) => self.accept("collect", collected.message),
                Body::MessageDropped(dropped) => {
                    self.queued.remove(&dropped.message);
                    *self.ended.entry("dropped").or_default() += 1;
                }
                _ => {}
            }
        }
        for row in rows {
            if let MessagePlace::Injected { run } = row.place
                && self.queued.remove(&row.id)
            {
                *self.read.entry(run).or_default() += 1;
            }
        }
        for (run, state) in runs {
            if *state != RunState::Queued && self.queued.remove(run) {
                // It is a message that has become a run.
                *self.read.entry(*run).or_default() += 1;
            }
        }
        for record in records {
            if let Body::RunEnded(ended) = &record.body {
                let read = self.read.remove(&ended.run).unwrap_or_default();
                let fate = if ended.ended.outcome == Outcome::Completed { "answered" } else { "failed" };
                *self.ended.entry(fate).or_default() += read;
            }
        }
    }

    fn accept(&mut self, mode: &'static str, message: RunId) {
        // A message that was steered and becomes a run later is accepted once.
        if self.queued.insert(message) {
            *self.accepted.entry(mode).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        DropReason, MessageDropped, MessageSteered, OutcomeDetail, QueueMode, Queueing, RunAccepted,
        RunEnded, RunSpec, SessionId, Timestamp, Usage,
    };

    use super::*;

    const RUN: RunId = RunId::from_bits(1);

    fn record(body: Body) -> Arc<Record> {
        Arc::new(Record { at: Timestamp(0), active_ms: 0, body })
    }

    fn accepted(run: RunId, mode: QueueMode) -> Arc<Record> {
        let spec = Arc::new(RunSpec::new(vec!["p/m".parse().unwrap()], "/w"));
        let queueing = Some(Queueing { mode, ..Queueing::default() });
        record(Body::RunAccepted(Box::new(RunAccepted { queueing, ..RunAccepted::new(run, "hi", spec) })))
    }

    fn ended(outcome: Outcome) -> Arc<Record> {
        let ended = OutcomeDetail { outcome, cause: None };
        record(Body::RunEnded(RunEnded { run: RUN, ended, iterations: 1, usage: Usage::default() }))
    }

    fn steered(message: RunId) -> Arc<Record> {
        let (text, request_hash) = ("x".into(), None);
        record(Body::MessageSteered(MessageSteered { run: RUN, text, followup_run: message, request_hash }))
    }

    /// A run of its own, a message that it reads, and one that is dropped; the run ends like this.
    #[track_caller]
    fn check(outcome: Outcome, expect: &[(&str, u64)]) {
        let counts = MessageCounts::default();
        let take = |records, rows, runs| counts.take(&MessageChanges { records, rows, runs });
        let row = |id, place| MessageRow { id, session: SessionId::from_bits(9), place, request_hash: None };
        take(vec![accepted(RUN, QueueMode::Followup)], vec![], vec![(RUN, RunState::Queued)]);
        assert_eq!(counts.get().queued(), 1);
        take(vec![], vec![], vec![(RUN, RunState::Running)]);
        let (read, dropped) = (RunId::from_bits(2), RunId::from_bits(3));
        take(vec![steered(read), steered(dropped)], vec![], vec![]);
        assert_eq!(counts.get().queued(), 2);
        let (run, reason) = (Some(RUN), DropReason::QueueFull { cap: 1 });
        let drop = MessageDropped { message: dropped, run, reason, excerpt: None, request_hash: None };
        take(vec![record(Body::MessageDropped(drop))], vec![], vec![]);
        take(vec![], vec![row(read, MessagePlace::Injected { run: RUN })], vec![]);
        take(vec![ended(outcome)], vec![], vec![(RUN, RunState::Ended)]);
        let counts = counts.get();
        assert_eq!(counts.queued(), 0);
        assert_eq!(counts.accepted, [("followup", 1), ("steer", 2)].into());
        assert_eq!(counts.ended, expect.iter().copied().collect());
        assert!(counts.read.is_empty());
    }

    #[test]
    fn a_message_shares_the_fate_of_the_run_that_has_read_it() {
        check(Outcome::Completed, &[("answered", 2), ("dropped", 1)]);
        check(Outcome::Stopped, &[("failed", 2), ("dropped", 1)]);
    }

    #[test]
    fn a_message_that_becomes_a_run_is_accepted_once() {
        let counts = MessageCounts::default();
        let take = |records, runs| counts.take(&MessageChanges { records, rows: Vec::new(), runs });
        let message = RunId::from_bits(2);
        take(vec![steered(message)], vec![]);
        take(vec![accepted(message, QueueMode::Steer)], vec![(message, RunState::Running)]);
        let counts = counts.get();
        assert_eq!((counts.accepted, counts.queued.len()), ([("steer", 1)].into(), 0));
    }
}

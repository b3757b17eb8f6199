//! The invariants that must hold at the end of a simulation, listed by name in [`INVARIANTS`], one function each. Those
//! of effects, spends, subagents and to-do lists are in files of their own.

use std::{collections::BTreeMap, ops::AddAssign, sync::Arc};

use futures::FutureExt;

use super::{
    descriptions, effect_invariants,
    external_world::{ExternalState, ExternalWorld, ServedModelCall},
    flushes, loops, messages,
    observations::is_force_fail,
    plan::SimulationPlan,
    policy, spending_invariants, store_limits, subagents, titles, todo, verification,
};
use crate::MemoryJournal;
use hermod_actors::{
    model::{
        Body, CallId, CompactionMethod, Kind, MessageFate, Outcome, QueueOverrides, Record, RunId, SessionId,
        Timestamp,
    },
    port::{InboxItem, Journal, ReadFuture, RowReader},
};

/// All that is known at the end of a simulation.
pub(super) struct FinalState<'a> {
    /// The records in the store.
    pub(super) journals: BTreeMap<SessionId, Vec<Arc<Record>>>,
    /// Inbox messages that no session has consumed.
    pub(super) inboxes: Vec<(SessionId, InboxItem)>,
    /// What the store's rows say of the accepted messages, by their number.
    pub(super) fates: BTreeMap<usize, MessageFate>,
    /// How the messages of each session queue, by its row.
    pub(super) queues: Vec<(SessionId, QueueOverrides)>,
    pub(super) inner: &'a ExternalState,
    pub(super) plan: &'a SimulationPlan,
}

/// The violations of one invariant, for reading.
pub(super) type Violations = Vec<String>;

type Invariant = fn(&FinalState<'_>) -> Violations;

const INVARIANTS: &[(&str, Invariant)] = &[
    ("what was acknowledged stays", acknowledged_stays),
    ("each run has one outcome", one_outcome),
    ("callers are told what is so", callers_are_told_the_truth),
    ("each call has one result", effect_invariants::one_result),
    ("a call starts after its approval", policy::starts_are_approved),
    ("an effect happens once", effect_invariants::at_most_once),
    ("an effect that is told has happened", effect_invariants::at_least_once),
    ("attempts do not overlap", effect_invariants::no_overlap),
    ("accounts add up", spending_invariants::add_up),
    ("periods add up", store_limits::periods_add_up),
    ("what a provider told is booked", spending_invariants::reported_usage_is_booked),
    ("what is completed has an answer", completed_has_an_answer),
    ("a message is shown once", messages_are_shown),
    ("a message has one fate", messages::one_fate),
    ("the queue of a session stays as it was set", messages::queues_stay),
    ("no message is overtaken", nothing_overtakes_a_message),
    ("a subagent is heard once", subagents::ended_once),
    ("inboxes are empty at last", subagents::inboxes_are_empty),
    ("a session has one title", titles::one_title),
    ("a flush is written once", flushes::written_once),
    ("pictures are described before they are read", descriptions::before_the_call),
    ("a list is what its calls made of it", todo::list_is_current),
    ("a loop ends", loops::loops_end),
    ("what is completed was checked", verification::completed_is_checked),
];

/// Checks all invariants against the store and the external world, and reports the violations.
pub(super) fn check_invariants(plan: &SimulationPlan, outside: &ExternalWorld, store: &MemoryJournal) {
    let journals = match journals(store) {
        Ok(journals) => journals,
        Err(error) => return outside.report_violation("sequence is dense", error),
    };
    let mut inner = outside.lock();
    let fates = messages::fates(store, &inner.observations.messages);
    let (inboxes, queues) = (store.inboxes(), messages::queues(store));
    let past = FinalState { journals, inboxes, fates, queues, inner: &inner, plan };
    let found: Vec<_> = INVARIANTS
        .iter()
        .flat_map(|(name, invariant)| invariant(&past).into_iter().map(move |what| (*name, what)))
        .collect();
    found.into_iter().for_each(|(name, what)| inner.observations.report_violation(name, what));
}

/// The records of every session. A gap in their numbers is an error.
pub(super) fn journals(store: &MemoryJournal) -> Result<BTreeMap<SessionId, Vec<Arc<Record>>>, String> {
    fn now<T>(read: ReadFuture<T>) -> Result<T, &'static str> {
        read.now_or_never().and_then(Result::ok).ok_or("the store cannot be read")
    }
    let mut journals = BTreeMap::new();
    for session in now(store.sessions(usize::MAX))?.iter().map(|row| row.id) {
        let records = now(store.records(session, 1, usize::MAX))?;
        if let Some((at, stored)) = (1..).zip(&records).find(|(at, stored)| stored.seq != *at) {
            return Err(format!("record {at} of {session} is numbered {}", stored.seq));
        }
        journals.insert(session, records.into_iter().map(|stored| stored.record).collect());
    }
    Ok(journals)
}

impl FinalState<'_> {
    /// The records of all sessions.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.journals.values().flatten().map(|record| &**record)
    }

    /// Whether the run was force-failed: ended without its session, so that its calls may have no ends.
    pub(super) fn is_force_failed(&self, run: RunId) -> bool {
        self.forced_ends().any(|forced| forced == run)
    }

    /// Whether a run was force-failed.
    pub(super) fn has_forced_end(&self) -> bool {
        self.forced_ends().next().is_some()
    }

    fn forced_ends(&self) -> impl Iterator<Item = RunId> {
        self.records().filter_map(|record| match &record.body {
            Body::RunEnded(ended) if is_force_fail(&ended.ended) => Some(ended.run),
            _ => None,
        })
    }
}

fn acknowledged_stays(past: &FinalState<'_>) -> Violations {
    let stored = |session: &SessionId, seq: u64| {
        let at = usize::try_from(seq).ok()?.checked_sub(1)?;
        past.journals.get(session)?.get(at)
    };
    let seen = past.inner.observations.acknowledged.iter();
    let lost = seen.filter(|((session, seq), record)| stored(session, *seq) != Some(*record));
    lost.map(|((session, seq), record)| {
        let kind = record.body.kind().name();
        format!("{kind} was told as record {seq} of {session}; there is {:?}", stored(session, *seq))
    })
    .collect()
}

fn one_outcome(past: &FinalState<'_>) -> Violations {
    let (mut accepted, mut found) = (BTreeMap::<RunId, (usize, usize)>::new(), Violations::new());
    let mut legs = BTreeMap::new();
    for record in past.records() {
        match &record.body {
            Body::RunAccepted(run) => accepted.entry(run.run).or_default().0 += 1,
            Body::RunReopened(run) => legs.entry(run.run).or_insert(1_usize).add_assign(1),
            Body::RunEnded(run) => accepted.entry(run.run).or_default().1 += 1,
            _ => {}
        }
    }
    for (run, (accepted, ended)) in accepted {
        let legs = legs.get(&run).copied().unwrap_or(1);
        if (accepted, ended) != (1, legs) {
            found.push(format!(
                "{run} was accepted {accepted} times and has ended {ended} times in {legs} legs"
            ));
        }
    }
    found
}

fn callers_are_told_the_truth(past: &FinalState<'_>) -> Violations {
    let (observations, mut found) = (&past.inner.observations, Violations::new());
    let has = |wanted: &dyn Fn(&Body) -> bool| past.records().any(|record| wanted(&record.body));
    for accepted in observations.accepted.values() {
        if !has(&|body| matches!(body, Body::RunAccepted(run) if run.run == accepted.run)) {
            found.push(format!("{} was said to be accepted", accepted.run));
        }
    }
    for result in observations.results.values() {
        if !has(
            &|body| matches!(body, Body::RunEnded(run) if run.run == result.run && run.ended == result.ended),
        ) {
            found.push(format!("{} was said to have ended: {}", result.run, result.ended));
        }
    }
    for stopped in &observations.stopped {
        let stops = |body: &Body| match body {
            Body::RunStopping(run) => run.run == *stopped,
            Body::RunEnded(run) => run.run == *stopped,
            _ => false,
        };
        if !has(&stops) {
            found.push(format!("{stopped} was said to stop"));
        }
    }
    found.extend(raised_limits_are_recorded(past));
    for (n, _, next) in &observations.steered {
        if !has(&|body| matches!(body, Body::MessageSteered(message) if message.followup_run == *next)) {
            found.push(format!("steer-{n} was said to be heard"));
        }
    }
    for (call, verdict) in &observations.decided {
        let is_so = |body: &Body| matches!(body, Body::ApprovalAnswered(answered) if (answered.call, answered.decision) == (*call, *verdict));
        if !has(&is_so) {
            found.push(format!("{call} was said to be {verdict}"));
        }
    }
    found
}

fn raised_limits_are_recorded(past: &FinalState<'_>) -> Violations {
    let (mut reported, mut written) = (BTreeMap::<RunId, usize>::new(), BTreeMap::<RunId, usize>::new());
    past.inner.observations.raised.iter().for_each(|run| reported.entry(*run).or_default().add_assign(1));
    for record in past.records() {
        match &record.body {
            Body::RunReopened(reopened) => written.entry(reopened.run).or_default().add_assign(1),
            Body::BudgetRaised(raised) => written.entry(raised.run).or_default().add_assign(1),
            _ => {}
        }
    }
    let times = |run: &RunId| written.get(run).copied().unwrap_or(0);
    let wrong = reported.iter().filter(|(run, reported)| times(run) < **reported);
    wrong
        .map(|(run, reported)| format!("{run} was said to be raised {reported} times: {}", times(run)))
        .collect()
}

fn completed_has_an_answer(past: &FinalState<'_>) -> Violations {
    let completed =
        past.inner.observations.results.values().filter(|result| result.ended.outcome == Outcome::Completed);
    let silent = completed.filter(|result| result.text().is_none_or(|text| text.trim().is_empty()));
    silent.map(|result| format!("{} is completed and says nothing", result.run)).collect()
}

/// The positions and calls at which a model is shown more than before. A retry shows what the first attempt has shown,
/// and so does the request after an answer that was not taken. The last call of an exhausted run shows no later
/// message.
fn new_views(records: &[Arc<Record>]) -> Vec<(usize, CallId)> {
    let (mut asked_again, mut exhausted, mut views) = (false, None, Vec::new());
    for (at, record) in records.iter().enumerate() {
        match &record.body {
            Body::ModelAnswered(answered) => asked_again = answered.is_asked_again(),
            Body::RunEnded(_) => asked_again = false,
            Body::RunExhausted(run) => exhausted = Some(run.run),
            Body::RunReopened(_) => exhausted = None,
            Body::ModelStarted(started) if exhausted == Some(started.call.run) => {}
            Body::ModelStarted(started) if started.attempt == 1 && !asked_again => {
                views.push((at, started.call));
            }
            _ => {}
        }
    }
    views
}

/// Every recorded message is in each new view after it, until a compaction drops history after its first showing.
/// A message to a run that ended before it began is exempt.
fn messages_are_shown(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    for records in past.journals.values() {
        let views = new_views(records);
        for (at, record) in records.iter().enumerate() {
            let Body::MessageSteered(message) = &record.body else { continue };
            let drops = |record: &Arc<Record>| matches!(&record.body, Body::MessageDropped(dropped) if dropped.message == message.followup_run);
            if records[at..].iter().any(drops) {
                continue;
            }
            let number = message.text.strip_prefix("steer-").and_then(|text| text.strip_suffix('.'));
            let number: Option<usize> = number.and_then(|digits| digits.parse().ok());
            let began = views.iter().any(|(_, call)| call.run == message.run);
            let mut after = views.iter().filter(|(view, _)| *view > at).peekable();
            let first = after.peek().map_or(records.len(), |(view, _)| *view);
            let ends =
                |record: &Arc<Record>| matches!(&record.body, Body::RunEnded(run) if run.run == message.run);
            // If the run ended before the message was shown, a compaction may drop the message with the run.
            let from = if records[at..first].iter().any(ends) { at } else { first };
            let cut = (from..records.len()).find(|at| drops_history(&records[*at])).unwrap_or(records.len());
            let after: Vec<CallId> = after.filter(|(view, _)| *view < cut).map(|(_, call)| *call).collect();
            let is_cut =
                |call: &ServedModelCall| records[cut..].iter().any(|record| starts_attempt(record, call));
            let calls =
                past.inner.model_calls.iter().filter(|call| after.contains(&call.call) && !is_cut(call));
            let not_shown =
                calls.filter(|call| number.is_none_or(|number| !call.shown_messages.contains(&number)));
            // A message to a run that waits behind others is shown when that run begins.
            let too_early = |call: CallId| !began || is_before(records, call, message.run);
            found.extend(not_shown.filter(|call| !too_early(call.call)).map(|call| {
                format!("{} of {} is not in the request of {}", message.text, message.run, call.call)
            }));
        }
    }
    found
}

/// Whether the record starts that attempt.
fn starts_attempt(record: &Record, call: &ServedModelCall) -> bool {
    matches!(&record.body, Body::ModelStarted(started) if (started.call, started.attempt) == (call.call, call.attempt))
}

/// Whether the record drops the oldest part of the view.
fn drops_history(record: &Record) -> bool {
    matches!(&record.body, Body::ContextCompacted(compacted) if compacted.method != CompactionMethod::Elided)
}

/// Whether a call was made before a run had begun.
fn is_before(records: &[Arc<Record>], call: CallId, run: RunId) -> bool {
    let first = |wanted: &dyn Fn(CallId) -> bool| {
        records
            .iter()
            .position(|record| matches!(&record.body, Body::ModelStarted(started) if wanted(started.call)))
    };
    first(&|other| other == call) < first(&|other| other.run == run)
}

/// No call is started for the first time between a message to its run and the next request.
fn nothing_overtakes_a_message(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    for records in past.journals.values() {
        let views = new_views(records);
        let mut waiting = None;
        for (at, record) in records.iter().enumerate() {
            match &record.body {
                Body::MessageSteered(message) => waiting = Some(message.run),
                Body::CallStarted(started) if started.attempt == 1 && waiting == Some(started.call.run) => {
                    found.push(format!("{} overtook a message", started.call));
                }
                _ if views.iter().any(|(view, _)| *view == at) => waiting = None,
                _ => {}
            }
        }
    }
    found
}

/// The kinds of a journal's records with their times, for reading.
pub(super) fn kinds(records: &[Arc<Record>]) -> Vec<(Timestamp, Kind)> {
    records.iter().map(|record| (record.at, record.body.kind())).collect()
}

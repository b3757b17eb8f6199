//! Messages to sessions: how each queues, and the invariant that each has exactly one fate.

use std::collections::BTreeMap;

use futures::FutureExt;

use super::invariants::{FinalState, Violations};
use crate::MemoryJournal;
use hermod_actors::{
    model::{
        Body, DropPolicy, MessageDropped, MessageFate, MessageState, Outcome, QueueMode, QueueOverrides,
        Queueing, Record, RunId, SessionId,
    },
    port::RowReader,
};

/// Added to a message's number for each further message of an event, so that no repeat of a steering message has it.
const NUMBER_STEP: usize = 10_000;

/// How the messages of an event queue; `None` if it steers a run by its id instead.
pub(super) fn queueing(seed: u64, n: usize) -> Option<Queueing> {
    let number = seed.wrapping_mul(31).wrapping_add(n as u64);
    let pick = |of: usize, by: u64| usize::try_from((number / by) % of as u64).unwrap_or(0);
    (pick(4, 1) > 0).then(|| Queueing {
        mode: QueueMode::ALL[pick(4, 4)],
        cap: [1, 2, 20][pick(3, 16)],
        drop: [DropPolicy::Summarize, DropPolicy::Old, DropPolicy::New][pick(3, 48)],
        collect_ms: [50, 500, 5_000][pick(3, 144)],
    })
}

/// What an event sets for its session after its messages, if it sets something. Only one of many events does.
pub(super) fn queue_to_set(seed: u64, n: usize) -> Option<QueueOverrides> {
    let queueing = queueing(seed, n)?;
    (queueing.cap == 2).then(|| QueueOverrides {
        mode: Some(queueing.mode),
        // A setting of its own, so that its record can be found.
        cap: Some(u32::try_from(n).unwrap_or(u32::MAX).saturating_add(1)),
        ..QueueOverrides::default()
    })
}

/// A setting that was acknowledged is in a record of its session, and the session's row has the last one.
pub(super) fn queues_stay(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    let records_of = |session: &SessionId| {
        let records = past.journals.get(session).into_iter().flatten();
        records.filter_map(|record| match &record.body {
            Body::QueueChanged(queue) => Some(*queue),
            _ => None,
        })
    };
    for (session, queue) in &past.inner.observations.queues_set {
        if !records_of(session).any(|recorded| recorded == *queue) {
            found.push(format!("{queue:?} was acknowledged and is in no record of {session}"));
        }
    }
    for (session, queue) in &past.queues {
        let last = records_of(session).next_back().unwrap_or_default();
        if last != *queue {
            found.push(format!("the row of {session} has {queue:?}, and its last record {last:?}"));
        }
    }
    found
}

/// How the messages of each session queue, by its row.
pub(super) fn queues(store: &MemoryJournal) -> Vec<(SessionId, QueueOverrides)> {
    let rows = store.sessions(usize::MAX).now_or_never().and_then(Result::ok).unwrap_or_default();
    rows.into_iter().map(|row| (row.id, row.queue)).collect()
}

/// The numbers of the messages that an event sends.
pub(super) fn numbers(seed: u64, n: usize) -> impl Iterator<Item = usize> {
    let count = usize::try_from(seed % 3).unwrap_or(0) + 1;
    (0..count).map(move |message| n + message * NUMBER_STEP)
}

/// The name of what a mode exercises, for the report.
pub(super) const fn mode_name(mode: QueueMode) -> &'static str {
    match mode {
        QueueMode::Steer => "message that steers",
        QueueMode::Followup => "message that follows",
        QueueMode::Collect => "message that is collected",
        QueueMode::Interrupt => "message that interrupts",
    }
}

/// What the rows of a store say of these messages.
pub(super) fn fates(
    store: &MemoryJournal,
    messages: &BTreeMap<usize, RunId>,
) -> BTreeMap<usize, MessageFate> {
    let fate = |id: RunId| {
        let message = store.message(id).now_or_never()?.ok()?;
        let run = message.as_ref().map_or(Some(id), |message| message.place.run());
        let run = run.and_then(|run| store.run(run).now_or_never()?.ok().flatten());
        (message.is_some() || run.is_some()).then(|| MessageFate::of(message.as_ref(), run.as_ref()))
    };
    messages.iter().filter_map(|(n, id)| Some((*n, fate(*id)?))).collect()
}

/// The message that a record places for the first time.
fn placed(record: &Record) -> Option<RunId> {
    match &record.body {
        Body::RunAccepted(accepted) if accepted.queueing.is_some() => Some(accepted.run),
        Body::MessageSteered(message) => Some(message.followup_run),
        Body::MessageCollected(message) => Some(message.message),
        Body::MessageDropped(MessageDropped { message, run: None, .. }) => Some(*message),
        _ => None,
    }
}

/// Each message is placed by one record and dropped at most once. At the end it is answered by a run that has shown it to
/// a model and has completed, or it is dropped, or it waits for a next run because its own has ended. A dropped message
/// is shown to no model, but for its beginning.
pub(super) fn one_fate(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    let (mut places, mut drops) =
        (BTreeMap::<RunId, usize>::new(), BTreeMap::<RunId, &MessageDropped>::new());
    for record in past.records() {
        if let Some(message) = placed(record) {
            *places.entry(message).or_default() += 1;
        }
        if let Body::MessageDropped(dropped) = &record.body
            && drops.insert(dropped.message, dropped).is_some()
        {
            found.push(format!("{} was dropped twice", dropped.message));
        }
    }
    let twice = places.iter().filter(|(_, times)| **times != 1);
    found.extend(twice.map(|(message, times)| format!("{message} was placed {times} times")));
    for (n, id) in &past.inner.observations.messages {
        if !places.contains_key(id) {
            found.push(format!("message {n} was said to be accepted, and {id} is in no record"));
        }
        match past.fates.get(n) {
            None => found.push(format!("message {n} has no row")),
            Some(fate) => found.extend(wrong_fate(past, *n, fate, drops.get(id).copied())),
        }
    }
    found
}

fn wrong_fate(
    past: &FinalState<'_>,
    n: usize,
    fate: &MessageFate,
    dropped: Option<&MessageDropped>,
) -> Option<String> {
    let shown_in = |run: Option<RunId>| {
        let mut calls = past.inner.model_calls.iter();
        calls.any(|call| call.shown_messages.contains(&n) && run.is_none_or(|run| call.call.run == run))
    };
    let has_completed = |run: RunId| {
        past.records().any(|record| {
            matches!(&record.body, Body::RunEnded(ended) if ended.run == run && ended.ended.outcome == Outcome::Completed)
        })
    };
    let is_right = match (fate.state, fate.run) {
        (MessageState::Answered, Some(run)) => has_completed(run) && shown_in(Some(run)) && dropped.is_none(),
        (MessageState::Dropped, _) => match dropped {
            Some(dropped) => dropped.excerpt.is_some() || !shown_in(None),
            None => fate.run.is_some_and(|run| !has_completed(run)),
        },
        (MessageState::Queued, Some(_)) => fate.reason.is_some() && dropped.is_none(),
        (MessageState::Answered | MessageState::Queued, None) | (MessageState::Injected, _) => false,
    };
    (!is_right).then(|| format!("message {n} is {fate:?}, dropped by {dropped:?}"))
}

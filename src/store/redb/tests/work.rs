//! Random writes of sessions and schedules: long and short records, rows, accounts, keys, inboxes, other sessions,
//! occurrences, and writes that must be refused.

use std::sync::Arc;

use hermod_actors::{
    model::{
        AccountId, Amounts, Body, CallEnd, CallEnded, CallId, Incarnation, LimitRaise, ListedLimits,
        ModelLimits, ModelRef, ModelRow, NewAccount, Occurrence, OccurrenceId, OccurrenceState, Outcome,
        OutcomeDetail, Record, Reservation, RunId, RunRow, RunState, Schedule, ScheduleDefinition,
        ScheduleName, ScheduleRules, ScheduleSource, ScheduleWrite, ScheduledTask, SessionId, SessionRow,
        Settlement, Timestamp, Timing,
    },
    port::{Append, IndexRow, SpawnedSession, WriteOp},
};

use super::{chance::Chance, model::Model};

const SESSIONS: usize = 5;
/// Number of further sessions, which may be spawned.
const CHILDREN: usize = 8;
const RUNS: usize = 12;
const SCHEDULES: usize = 3;
/// Number of occurrences of each schedule.
const OCCURRENCES: usize = 12;

fn session(chance: &mut Chance) -> SessionId {
    if chance.one_in(5) {
        return child(chance);
    }
    SessionId::from_bits((1 + chance.below(SESSIONS) as u128) << 70)
}

fn child(chance: &mut Chance) -> SessionId {
    SessionId::from_bits(((1 + SESSIONS + chance.below(CHILDREN)) as u128) << 70)
}

/// The next batch of a process.
pub(super) fn batch(model: &Model, chance: &mut Chance) -> Vec<WriteOp> {
    let mut model = model.clone();
    (0..=chance.below(4))
        .map(|_| {
            let write = write(&model, chance);
            model.assume(std::slice::from_ref(&write));
            write
        })
        .collect()
}

fn write(model: &Model, chance: &mut Chance) -> WriteOp {
    if chance.one_in(10) {
        return schedule(model, chance);
    }
    let session = session(chance);
    match model.fence(session) {
        None => WriteOp::Open(session),
        Some(_) if chance.one_in(8) => WriteOp::Deliver(session, text(chance).into()),
        Some(_) if chance.one_in(30) => WriteOp::Open(session),
        Some(fence) => {
            // The incarnation before it, if there was one, is fenced.
            let stale = u32::from(chance.one_in(25));
            let fence = Incarnation { revival: fence.revival - stale, ..fence };
            let wrong = u64::from(chance.one_in(20));
            let item = model.item(session).filter(|_| chance.one_in(2));
            let only_takes = item.is_some() && chance.one_in(3);
            let records = if only_takes { Vec::new() } else { records(chance) };
            let mut append = Append::new(session, fence, model.last(session) + 1 + wrong, records);
            append.consumed.extend(item);
            row(session, &mut append, model);
            run(&mut append, model, chance);
            if chance.one_in(6) {
                append.deliver.push((self::session(chance), text(chance).into()));
            }
            while chance.one_in(4) {
                found(&mut append, model, chance);
            }
            WriteOp::Append(Box::new(append))
        }
    }
}

/// A write or a removal of a schedule, sometimes of another revision than the present one.
fn schedule(model: &Model, chance: &mut Chance) -> WriteOp {
    let name = schedule_name(chance);
    let revision = model.schedules.get(&name).map_or(0, |row| row.revision);
    let expected = revision + u64::from(chance.one_in(10));
    if chance.one_in(6) {
        return WriteOp::RemoveSchedule(name, expected);
    }
    let left_out = |chance: &mut Chance| Occurrence {
        id: occurrence(name.clone(), chance),
        state: OccurrenceState::Skipped { reason: text(chance).into() },
        recorded_at: Timestamp(4),
        further: None,
    };
    let left_out = (0..chance.below(3)).map(|_| left_out(chance)).collect();
    let timing = Timing::Every { interval_ms: 1_000 + chance.next() % 1_000_000, anchor: Timestamp(0) };
    let (task, rules) = (ScheduledTask::new(text(chance)), ScheduleRules::default());
    let schedule = Schedule {
        name,
        source: ScheduleSource::Command,
        definition: ScheduleDefinition { timing, task, rules },
        created_at: Timestamp(1),
        next: (!chance.one_in(4)).then_some(Timestamp(9)),
        paused: None,
        resumed_at: None,
        revision: expected + 1,
    };
    WriteOp::Schedule(Box::new(ScheduleWrite { schedule, expected, left_out, notices: Vec::new() }))
}

fn schedule_name(chance: &mut Chance) -> ScheduleName {
    format!("s{}", chance.below(SCHEDULES)).parse().expect("a name")
}

fn occurrence(schedule: ScheduleName, chance: &mut Chance) -> OccurrenceId {
    let at = i64::try_from(chance.below(OCCURRENCES)).expect("not so many");
    OccurrenceId { schedule, at: Timestamp(1_000 * at) }
}

fn row(session: SessionId, append: &mut Append, model: &Model) {
    if !model.has_row(session) {
        let key = format!("key of {session}");
        append.index.push(IndexRow::Session(SessionRow::new(session, key, Timestamp(1))));
    }
}

/// A session that an append spawns; sometimes one that cannot be spawned.
fn found(append: &mut Append, model: &Model, chance: &mut Chance) {
    let session = child(chance);
    if model.last(session) > 0 && !chance.one_in(8) {
        return;
    }
    let records = if chance.one_in(12) { Vec::new() } else { records(chance) };
    append.spawned.push(SpawnedSession { session, records });
    row(session, append, model);
}

fn some_run(chance: &mut Chance) -> RunId {
    RunId::from_bits((1 + chance.below(RUNS) as u128) << 80)
}

fn amounts(tokens: u64, iterations: u64) -> Amounts {
    Amounts { tokens: Some(tokens), iterations: Some(iterations), ..Amounts::default() }
}

/// What an append does to a run, its account, and its key.
fn run(append: &mut Append, model: &Model, chance: &mut Chance) {
    let id = some_run(chance);
    let account = AccountId::from(id);
    let last = append.expected + append.records.len() as u64 - 1;
    let Some(row) = model.has(id) else {
        // A row names the record that wrote it.
        if append.records.is_empty() {
            return;
        }
        let parent = Some(some_run(chance)).filter(|parent| model.has(*parent).is_some());
        append.ledger.new_accounts.push(NewAccount {
            id: account,
            parent: parent.map(AccountId::from),
            limits: amounts(5_000, 20),
            owns_iterations: chance.one_in(2),
        });
        append.key = chance.one_in(2).then(|| (format!("order {id}").into(), id));
        append.index.push(IndexRow::Run(Box::new(accepted(id, append, last))));
        if chance.one_in(3) {
            let of = occurrence(schedule_name(chance), chance);
            append.index.push(IndexRow::Occurrence(Occurrence::ran(of, id, Timestamp(2))));
        }
        return;
    };
    if chance.one_in(2) {
        append.ledger.reservations.push(Reservation { account, amounts: some(900, chance) });
    } else {
        let (reserved, spent) = (some(900, chance), some(300, chance));
        append.ledger.settlements.push(Settlement { account, reserved, spent, refund: Amounts::default() });
    }
    if chance.one_in(6) {
        append.ledger.raises.push(LimitRaise { account, amounts: some(3_000, chance) });
    }
    if row.session != append.session || append.records.is_empty() {
        return;
    }
    let ends = chance.one_in(5);
    let state = if ends { RunState::Ended } else { row.state };
    let ended = ends
        .then_some(OutcomeDetail { outcome: Outcome::Completed, cause: None })
        .or_else(|| row.ended.clone());
    append.index.push(IndexRow::Run(Box::new(RunRow { state, ended, last, ..row.clone() })));
    if ends {
        append.index.push(IndexRow::Model(learned(chance)));
    }
}

/// A run's observations of a model.
fn learned(chance: &mut Chance) -> ModelRow {
    let provider = if chance.one_in(2) { "p" } else { "q" };
    let per_1000 = u16::try_from(chance.below(1_200)).unwrap_or_default();
    ModelRow {
        model: ModelRef::new(provider, "m/1").unwrap(),
        density: (!chance.one_in(3)).then_some(per_1000.into()),
        window: chance.one_in(3).then(|| chance.next()),
        listed: chance.one_in(3).then(|| ListedLimits {
            at: Timestamp(3),
            limits: ModelLimits { window: Some(chance.next()), max_output: None },
        }),
    }
}

fn some(tokens: u64, chance: &mut Chance) -> Amounts {
    amounts(chance.next() % tokens, chance.next() % 4)
}

fn accepted(id: RunId, append: &Append, last: u64) -> RunRow {
    RunRow {
        state: RunState::Running,
        last,
        ..RunRow::new(id, append.session, Timestamp(2), append.expected)
    }
}

fn records(chance: &mut Chance) -> Vec<Arc<Record>> {
    (0..=chance.below(3)).map(|_| record(chance)).collect()
}

pub(super) fn record(chance: &mut Chance) -> Arc<Record> {
    let call = CallId { run: RunId::from_bits(1), iteration: 1, n: 1 };
    let body = Body::CallEnded(CallEnded::new(call, 1, CallEnd::ok(text(chance))));
    Arc::new(Record { at: Timestamp(3), active_ms: chance.next() >> 20, body })
}

/// A text that fills a row, shares one, or needs a file of its own. Some texts repeat.
fn text(chance: &mut Chance) -> String {
    let length = match chance.below(30) {
        0 => 16_500 + chance.below(2) * 1_000,
        1 | 2 => chance.below(9_000),
        _ => chance.below(200),
    };
    let letter = char::from(b'a' + u8::try_from(chance.below(26)).expect("a letter"));
    format!("{} {}", chance.below(4), letter.to_string().repeat(length))
}

//! Cases of the journal contract: schedules, and the rows of their occurrences.

use hermod_actors::{
    model::{
        DeliveryQuery, DeliveryState, FurtherOccurrences, Incarnation, KEPT_OCCURRENCES, MAX_SCHEDULES,
        Occurrence, OccurrenceId, OccurrenceQuery, OccurrenceState, OutboxContent, OutboxMessage, RunState,
        Schedule, ScheduleDefinition, ScheduleName, ScheduleOutcome, ScheduleRules, ScheduleSource,
        ScheduleWrite, ScheduledTask, Timestamp, Timing,
    },
    port::{Append, IndexRow, WriteOp, WriteOutcome, WriteRefusal},
};

use super::subject::{Subject, check, index_run, one, run, session};

fn name(name: &str) -> ScheduleName {
    name.parse().expect("a name")
}

fn id(schedule: &str, at: i64) -> OccurrenceId {
    OccurrenceId { schedule: name(schedule), at: Timestamp(at) }
}

fn schedule(schedule: &str, revision: u64) -> Schedule {
    let task = ScheduledTask::new(format!("text {revision}"));
    let (timing, rules) = (Timing::Once { at: Timestamp(9) }, ScheduleRules::default());
    Schedule {
        name: name(schedule),
        source: ScheduleSource::Command,
        definition: ScheduleDefinition { timing, task, rules },
        created_at: Timestamp(1),
        next: Some(Timestamp(9)),
        paused: None,
        resumed_at: None,
        revision,
    }
}

/// The write of revision `expected + 1`.
fn write(of: &str, expected: u64) -> ScheduleWrite {
    ScheduleWrite {
        schedule: schedule(of, expected + 1),
        expected,
        left_out: Vec::new(),
        notices: Vec::new(),
    }
}

fn missed(schedule: &str, at: i64) -> Occurrence {
    let further = Some(FurtherOccurrences { count: 2, until: Timestamp(at + 1) });
    let state = OccurrenceState::Missed { reason: "down".into() };
    Occurrence { id: id(schedule, at), state, recorded_at: Timestamp(20), further }
}

fn ran(schedule: &str, at: i64, n: u128) -> Occurrence {
    Occurrence::ran(id(schedule, at), run(n), Timestamp(30))
}

fn running(fence: Incarnation, expected: u64, row: Occurrence, n: u128) -> Append {
    let index = vec![index_run(n, session(1), RunState::Queued), IndexRow::Occurrence(row)];
    Append { index, ..one(session(1), fence, expected) }
}

async fn put(journal: &Subject, write: ScheduleWrite) -> ScheduleOutcome {
    outcome(&journal.batch(vec![WriteOp::Schedule(Box::new(write))]).await)
}

fn outcome(written: &[WriteOutcome]) -> ScheduleOutcome {
    match written {
        [WriteOutcome::ScheduleWritten(outcome)] => *outcome,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_schedule_is_replaced_by_its_revision(mut journal: Subject) {
    use ScheduleOutcome::{Changed, Written};
    assert_eq!(put(&journal, write("a", 1)).await, Changed(0));
    assert_eq!(put(&journal, write("b", 0)).await, Written);
    assert_eq!(put(&journal, write("a", 0)).await, Written);
    assert_eq!(put(&journal, write("a", 0)).await, Changed(1));
    assert_eq!(put(&journal, write("a", 1)).await, Written);
    for _ in 0..2 {
        check(journal.rows().schedules(), vec![schedule("a", 2), schedule("b", 1)]).await;
        check(journal.rows().schedule(name("a")), Some(schedule("a", 2))).await;
        check(journal.rows().schedule(name("c")), None).await;
        journal.reopen();
    }
    let refused = ScheduleWrite { left_out: vec![missed("a", 5)], ..write("a", 7) };
    assert_eq!(put(&journal, refused).await, Changed(2), "with all that came with it");
    check(journal.rows().occurrences(OccurrenceQuery::of(name("a"), 9)), Vec::new()).await;
    let remove =
        async |of, revision| outcome(&journal.batch(vec![WriteOp::RemoveSchedule(name(of), revision)]).await);
    assert_eq!(remove("a", 1).await, Changed(2));
    assert_eq!(remove("c", 0).await, Changed(0));
    let leaving = ScheduleWrite { left_out: vec![missed("a", 5)], ..write("a", 2) };
    assert_eq!(put(&journal, leaving).await, Written);
    assert_eq!(remove("a", 3).await, Written);
    assert_eq!(remove("a", 3).await, Changed(0));
    check(journal.rows().schedules(), vec![schedule("b", 1)]).await;
    check(journal.rows().occurrence(id("a", 5)), Some(missed("a", 5))).await;
}

pub(super) async fn schedules_are_bounded(journal: Subject) {
    let batch = (0..MAX_SCHEDULES).map(|n| WriteOp::Schedule(Box::new(write(&format!("s{n}"), 0)))).collect();
    let written = journal.batch(batch).await;
    assert!(written.iter().all(|written| outcome(std::slice::from_ref(written)) == ScheduleOutcome::Written));
    assert_eq!(put(&journal, write("more", 0)).await, ScheduleOutcome::TooMany);
    assert_eq!(put(&journal, write("s5", 1)).await, ScheduleOutcome::Written);
    journal.batch(vec![WriteOp::RemoveSchedule(name("s7"), 1)]).await;
    assert_eq!(put(&journal, write("more", 0)).await, ScheduleOutcome::Written);
}

pub(super) async fn an_occurrence_has_one_row(mut journal: Subject) {
    let fence = journal.take_over(session(1)).await.incarnation;
    journal.append(running(fence, 1, ran("a", 10, 1), 1)).await;
    journal.check_refused(running(fence, 2, ran("a", 10, 2), 2), WriteRefusal::Duplicate(run(1))).await;
    let left_out = vec![missed("a", 10), missed("a", 11)];
    assert_eq!(
        put(&journal, ScheduleWrite { left_out, ..write("a", 0) }).await,
        ScheduleOutcome::Written,
        "a row that is there stays"
    );
    journal.reopen();
    let fence = journal.take_over(session(1)).await.incarnation;
    let left_out = WriteRefusal::OccurrenceLeftOut(id("a", 11));
    journal.check_refused(running(fence, 2, ran("a", 11, 3), 3), left_out).await;
    let twice = [IndexRow::Occurrence(ran("a", 12, 3)), IndexRow::Occurrence(ran("a", 12, 4))];
    let twice = Append { index: twice.into(), ..one(session(1), fence, 2) };
    journal.check_refused(twice, WriteRefusal::Duplicate(run(3))).await;
    let batch = [running(fence, 2, ran("a", 12, 3), 3), running(fence, 3, ran("a", 12, 4), 4)];
    let written = journal.batch(batch.map(|append| WriteOp::Append(Box::new(append))).into()).await;
    assert_eq!(written[1], WriteOutcome::Refused(WriteRefusal::Duplicate(run(3))), "also inside a batch");
    let rows = vec![ran("a", 12, 3), missed("a", 11), ran("a", 10, 1)];
    check(journal.rows().occurrences(OccurrenceQuery::of(name("a"), 9)), rows).await;
    check(journal.rows().run(run(2)), None).await;
}

pub(super) async fn occurrences_are_listed_from_the_newest_on(journal: Subject) {
    let fence = journal.take_over(session(1)).await.incarnation;
    journal.append(running(fence, 1, ran("b", 20, 1), 1)).await;
    journal.append(running(fence, 2, ran("a", -5, 2), 2)).await;
    let left_out = vec![missed("a", 30), missed("a", 10), missed("a", 20)];
    put(&journal, ScheduleWrite { left_out, ..write("a", 0) }).await;
    let of = async |query: OccurrenceQuery, expect: &[(&str, i64)]| {
        let rows = journal.rows().occurrences(query).await.expect("they can be read");
        let found: Vec<_> = rows.iter().map(|row| (row.id.schedule.as_str(), row.id.at.0)).collect();
        assert_eq!(found, expect);
    };
    let all = OccurrenceQuery { max: 9, ..OccurrenceQuery::default() };
    let a = || OccurrenceQuery::of(name("a"), 9);
    of(all.clone(), &[("a", 30), ("b", 20), ("a", 20), ("a", 10), ("a", -5)]).await;
    of(OccurrenceQuery { max: 2, ..all.clone() }, &[("a", 30), ("b", 20)]).await;
    of(OccurrenceQuery { max: 0, ..all.clone() }, &[]).await;
    of(OccurrenceQuery { with_run: true, ..all.clone() }, &[("b", 20), ("a", -5)]).await;
    of(OccurrenceQuery { since: Some(Timestamp(20)), ..all }, &[("a", 30), ("b", 20), ("a", 20)]).await;
    of(a(), &[("a", 30), ("a", 20), ("a", 10), ("a", -5)]).await;
    of(OccurrenceQuery { with_run: true, max: 1, ..a() }, &[("a", -5)]).await;
    of(OccurrenceQuery { before: Some(Timestamp(20)), ..a() }, &[("a", 10), ("a", -5)]).await;
    of(OccurrenceQuery { until: Some(Timestamp(20)), ..a() }, &[("a", 20), ("a", 10), ("a", -5)]).await;
    let between = OccurrenceQuery { since: Some(Timestamp(25)), until: Some(Timestamp(5)), ..a() };
    of(between, &[]).await;
    of(OccurrenceQuery::of(name("c"), 9), &[]).await;
}

pub(super) async fn the_newest_occurrences_are_kept(journal: Subject) {
    let kept = i64::try_from(KEPT_OCCURRENCES).expect("a small number");
    let fence = journal.take_over(session(1)).await.incarnation;
    let left_out = (1..=kept).map(|at| missed("a", at)).collect();
    put(&journal, ScheduleWrite { left_out, ..write("a", 0) }).await;
    put(&journal, ScheduleWrite { left_out: vec![missed("b", 1)], ..write("b", 0) }).await;
    check(journal.rows().occurrence(id("a", 1)), Some(missed("a", 1))).await;
    journal.append(running(fence, 1, ran("a", kept + 1, 1), 1)).await;
    check(journal.rows().occurrence(id("a", 1)), None).await;
    check(journal.rows().occurrence(id("a", 2)), Some(missed("a", 2))).await;
    put(&journal, ScheduleWrite { left_out: vec![missed("a", kept + 2)], ..write("a", 1) }).await;
    check(journal.rows().occurrence(id("a", 2)), None).await;
    let all = journal.rows().occurrences(OccurrenceQuery::of(name("a"), usize::MAX)).await;
    assert_eq!(all.expect("they can be read").len(), KEPT_OCCURRENCES);
    check(journal.rows().occurrence(id("b", 1)), Some(missed("b", 1))).await;
}

pub(super) async fn the_notice_of_a_pause_waits_in_the_outbox(journal: Subject) {
    let notice = OutboxMessage {
        id: OutboxMessage::id_of_pause(run(1), "ops"),
        target: "ops".into(),
        session: session(1),
        run: run(1),
        created_at: Timestamp(10),
        content: OutboxContent::Notice { text: "paused".into() },
    };
    let notices = vec![notice.clone()];
    put(&journal, ScheduleWrite { notices: notices.clone(), ..write("a", 5) }).await;
    let pending = DeliveryQuery::of_state(DeliveryState::Pending, 9);
    check(journal.rows().deliveries(pending.clone()), Vec::new()).await;
    put(&journal, ScheduleWrite { notices, ..write("a", 0) }).await;
    let found = journal.rows().deliveries(pending).await.expect("they can be read");
    assert_eq!(found.into_iter().map(|stored| stored.delivery.message).collect::<Vec<_>>(), [notice]);
}

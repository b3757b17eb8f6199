//! The next step of a schedule each minute, at its edges.

use super::*;
use crate::model::{
    FurtherOccurrences, Misfire, Occurrence, OccurrenceState, Outcome, OutcomeDetail, Overlap, RunId, RunRow,
    RunState, Schedule, ScheduleDefinition, SchedulePause, ScheduleRules, ScheduleSource, ScheduledTask,
    SessionId, Timestamp, Timing,
};

const MINUTE: i64 = 60_000;
const RUN: RunId = RunId::from_bits(7);

#[expect(clippy::unnecessary_wraps, reason = "the signature of a calendar")]
fn every_minute(timing: &Timing, after: Timestamp) -> Result<Option<Timestamp>, String> {
    match timing {
        Timing::Every { interval_ms, .. } => {
            let interval = interval_ms.cast_signed();
            Ok(Some(Timestamp((after.0.div_euclid(interval) + 1) * interval)))
        }
        // Times that are only known one by one.
        Timing::Cron { .. } => Ok(Some(Timestamp((after.0.div_euclid(MINUTE) + 1) * MINUTE))),
        Timing::Once { at } => Ok(Some(*at).filter(|at| *at > after)),
    }
}

fn schedule(rules: ScheduleRules) -> Schedule {
    let task =
        ScheduledTask { deliver_to: Some(["ops".into(), "dev".into()].into()), ..ScheduledTask::new("Look") };
    let timing = Timing::Cron { expression: "* * * * *".into(), zone: "UTC".into() };
    Schedule {
        name: "s".parse().unwrap(),
        source: ScheduleSource::Command,
        definition: ScheduleDefinition { timing, task, rules },
        created_at: Timestamp(0),
        next: Some(Timestamp(10 * MINUTE)),
        paused: None,
        resumed_at: None,
        revision: 1,
    }
}

fn rules(misfire: Misfire, overlap: Overlap) -> ScheduleRules {
    ScheduleRules { misfire, overlap, grace_ms: 30_000, ..ScheduleRules::default() }
}

fn under_way(accepted_at: i64) -> Vec<RunUnderWay> {
    vec![RunUnderWay { run: RUN, accepted_at: Timestamp(accepted_at), is_stopping: false }]
}

/// The step in short: what is left out are minutes, those without rows in brackets.
fn shown(step: &ScheduleStep) -> String {
    let minute = |at: &Timestamp| at.0 / MINUTE;
    match step {
        ScheduleStep::Rest => "rest".into(),
        ScheduleStep::WaitUntil(at) => format!("wait until {}", at.0),
        ScheduleStep::WaitForEnd(at) => format!("wait for end or {:?}", at.as_ref().map(minute)),
        ScheduleStep::Start(at) => format!("start {}", minute(at)),
        ScheduleStep::Stop(_) => "stop".into(),
        ScheduleStep::LeaveOut(rows, next) => {
            let row = |row: &Occurrence| match (&row.state, row.further) {
                (OccurrenceState::Missed { .. }, None) => format!("missed {}", minute(&row.id.at)),
                (OccurrenceState::Missed { .. }, Some(further)) => {
                    format!("missed {} [{} to {}]", minute(&row.id.at), further.count, minute(&further.until))
                }
                (OccurrenceState::Skipped { .. }, _) => format!("skipped {}", minute(&row.id.at)),
                (OccurrenceState::Ran { .. }, _) => "ran".into(),
            };
            let rows: Vec<_> = rows.iter().map(row).collect();
            format!("{}; next {:?}", rows.join(", "), next.as_ref().map(minute))
        }
        ScheduleStep::Pause(pause, notices) => {
            let targets: Vec<_> =
                notices.iter().map(|notice| format!("{} of {}", notice.target, notice.run)).collect();
            format!("pause: {}; told: {}", pause.reason, targets.join(", "))
        }
    }
}

const NO_FAILURES: &FailureStreak = &FailureStreak { count: 0, last: None };

fn facts(schedule: &Schedule, now: i64) -> ScheduleFacts<'_> {
    ScheduleFacts {
        schedule,
        now: Timestamp(now),
        under_way: &[],
        last_end: None,
        failures: NO_FAILURES,
        has_row: false,
        jitter: jitter_ms,
        last_error: None,
    }
}

#[track_caller]
fn check_facts(facts: ScheduleFacts<'_>, expect: &str) {
    assert_eq!(shown(&next_step(facts, &every_minute).unwrap()), expect);
}

#[track_caller]
fn check(misfire: Misfire, overlap: Overlap, now: i64, under_way: &[RunUnderWay], expect: &str) {
    let schedule = schedule(rules(misfire, overlap));
    check_facts(ScheduleFacts { under_way, ..facts(&schedule, now) }, expect);
}

#[test]
fn an_occurrence_starts_at_its_time() {
    use Misfire::RunOnce;
    check(RunOnce, Overlap::Skip, 10 * MINUTE - 1, &[], "wait until 600000");
    check(RunOnce, Overlap::Skip, 10 * MINUTE, &[], "start 10");
    check(RunOnce, Overlap::Skip, 10 * MINUTE + 30_000, &[], "start 10");
    let schedule = Schedule { next: None, ..schedule(rules(RunOnce, Overlap::Skip)) };
    check_facts(facts(&schedule, 10 * MINUTE), "rest");
    let ended = Schedule {
        next: Some(Timestamp(10 * MINUTE)),
        definition: ScheduleDefinition {
            rules: ScheduleRules { ends_at: Some(Timestamp(10 * MINUTE)), ..ScheduleRules::default() },
            ..schedule.definition.clone()
        },
        ..schedule.clone()
    };
    check_facts(facts(&ended, 10 * MINUTE), "; next None");
    let paused = SchedulePause { since: Timestamp(0), reason: "so".into() };
    check_facts(facts(&Schedule { paused: Some(paused), ..ended }, 99 * MINUTE), "rest");
}

#[test]
fn late_occurrences_follow_the_misfire_rule() {
    use Misfire::{RunAll, RunOnce, Skip};
    let now = 12 * MINUTE + 40_000;
    check(RunOnce, Overlap::Skip, now, &[], "missed 10, missed 11; next Some(12)");
    check(Skip, Overlap::Skip, now, &[], "missed 10, missed 11, missed 12; next Some(13)");
    check(RunAll, Overlap::Skip, now, &[], "start 10");
    check(RunOnce, Overlap::Skip, now - 20_000, &[], "missed 10; next Some(11)");
    check(Skip, Overlap::Skip, now - 20_000, &[], "missed 10, missed 11; next Some(12)");
}

#[test]
fn an_occurrence_that_waited_for_a_run_is_not_late() {
    let check = |overlap, expect| {
        let schedule = schedule(rules(Misfire::Skip, overlap));
        let last_end = Some(Timestamp(10 * MINUTE + 50_000));
        check_facts(ScheduleFacts { last_end, ..facts(&schedule, 10 * MINUTE + 55_000) }, expect);
    };
    check(Overlap::Queue, "start 10");
    check(Overlap::Cancel, "start 10");
    check(Overlap::Skip, "missed 10; next Some(11)");
}

#[test]
fn an_occurrence_that_overlaps_follows_the_rule() {
    use Misfire::{RunAll, RunOnce};
    let (now, fresh, late) = (10 * MINUTE + 1_000, under_way(9 * MINUTE), under_way(10 * MINUTE + 500));
    check(RunOnce, Overlap::Skip, now, &fresh, "skipped 10; next Some(11)");
    check(RunOnce, Overlap::Queue, now, &fresh, "wait for end or Some(11)");
    check(RunOnce, Overlap::Cancel, now, &fresh, "stop");
    check(RunOnce, Overlap::Cancel, now + MINUTE, &fresh, "skipped 10; next Some(11)");
    check(RunAll, Overlap::Skip, now, &late, "wait for end or Some(11)");
    check(RunAll, Overlap::Skip, now, &fresh, "skipped 10; next Some(11)");
    check(RunAll, Overlap::Cancel, now, &late, "wait for end or Some(11)");
    let stopping = [RunUnderWay { is_stopping: true, ..fresh[0] }];
    check(RunOnce, Overlap::Cancel, now, &stopping, "wait for end or Some(11)");
    check(RunOnce, Overlap::Queue, 25 * MINUTE, &fresh, "wait for end or Some(26)");
    check(RunOnce, Overlap::Queue, 26 * MINUTE, &fresh, "skipped 10; next Some(11)");
    check(RunAll, Overlap::Queue, 26 * MINUTE, &fresh, "wait for end or Some(27)");
}

#[test]
fn a_long_gap_has_a_bounded_number_of_rows() {
    let gap = |timing: Timing, now: i64| {
        let mut schedule = schedule(rules(Misfire::Skip, Overlap::Skip));
        schedule.definition.timing = timing;
        let ScheduleStep::LeaveOut(rows, next) = next_step(facts(&schedule, now), &every_minute).unwrap()
        else {
            panic!("nothing is left out");
        };
        (rows, next)
    };
    let week = 7 * 1_440 * MINUTE;
    let cron = Timing::Cron { expression: "* * * * *".into(), zone: "UTC".into() };
    for (timing, interval, counted) in [
        (cron, MINUTE, crate::model::MAX_COUNTED_OCCURRENCES),
        (Timing::Every { interval_ms: 1_000, anchor: Timestamp(0) }, 1_000, u64::MAX),
    ] {
        let (rows, next) = gap(timing, week + 40_000);
        assert!((500..=1_001).contains(&rows.len()), "{}", rows.len());
        let of_gap = (next.unwrap().0 - 10 * MINUTE) / interval;
        let FurtherOccurrences { count, until } = rows[0].further.unwrap();
        assert_eq!(count, counted.min(of_gap.cast_unsigned() - rows.len() as u64));
        assert!(rows[0].id.at == Timestamp(10 * MINUTE) && until < rows[1].id.at);
        assert!(rows[1..].iter().all(|row| row.further.is_none()));
        assert!(next.is_some_and(|next| next.0 > week));
    }
}

#[test]
fn a_row_that_is_there_advances_the_time() {
    let schedule = schedule(rules(Misfire::RunOnce, Overlap::Skip));
    check_facts(ScheduleFacts { has_row: true, ..facts(&schedule, 30 * MINUTE) }, "; next Some(11)");
}

#[test]
fn jitter_is_below_the_distance_and_always_the_same() {
    let mut schedule = schedule(rules(Misfire::RunOnce, Overlap::Skip));
    schedule.definition.rules.jitter_ms = 10 * MINUTE.cast_unsigned();
    let jitter = jitter_ms(&schedule.name, Timestamp(10 * MINUTE), MINUTE.cast_unsigned() - 1);
    assert!(jitter < MINUTE.cast_unsigned() && jitter > 0);
    let begins = 10 * MINUTE + jitter.cast_signed();
    check_facts(facts(&schedule, 10 * MINUTE), &format!("wait until {begins}"));
    check_facts(facts(&schedule, begins), "start 10");
    assert_eq!(jitter_ms(&schedule.name, Timestamp(5), 0), 0);
}

#[test]
fn failures_in_a_row_pause_the_schedule_and_tell_its_targets() {
    let row = |n: u128, outcome: Option<Outcome>| RunRow {
        state: if outcome.is_some() { RunState::Ended } else { RunState::Running },
        ended: outcome.map(|outcome| OutcomeDetail { outcome, cause: None }),
        ..RunRow::new(RunId::from_bits(n), SessionId::from_bits(1), Timestamp(1), 1)
    };
    let check = |newest: &[Option<Outcome>], expect: u32| {
        let rows = newest.iter().zip(1..).map(|(outcome, n)| row(n, *outcome));
        assert_eq!(failures_in_row(rows).count, expect);
    };
    let (failed, stopped, completed) =
        (Some(Outcome::Failed), Some(Outcome::Stopped), Some(Outcome::Completed));
    check(&[], 0);
    check(&[completed, failed], 0);
    check(&[None, failed, stopped, Some(Outcome::TimedOut), completed, failed], 2);
    let mut schedule = schedule(rules(Misfire::RunOnce, Overlap::Skip));
    schedule.definition.rules.pause_after = Some(2);
    let streak = failures_in_row([row(9, failed), row(8, failed)]);
    let reason =
        format!("2 runs in a row did not complete; the last one was {}: failed", RunId::from_bits(9));
    let last = RunId::from_bits(9);
    let expect = format!("pause: {reason}; told: ops of {last}, dev of {last}");
    check_facts(ScheduleFacts { failures: &streak, ..facts(&schedule, 0) }, &expect);
}

#[test]
fn one_row_stands_for_a_pause() {
    let mut paused = schedule(rules(Misfire::RunOnce, Overlap::Skip));
    paused.paused = Some(SchedulePause { since: Timestamp(0), reason: "so".into() });
    let check = |paused: &Schedule, now: i64, expect: Option<Option<(u64, i64)>>, next: Option<i64>| {
        let times = ScheduleTimes::new(&paused.name, &paused.definition, &every_minute);
        let (resumed, row) = resume(paused, &times, Timestamp(now), false).unwrap();
        let further = |row: Occurrence| row.further.map(|of| (of.count, of.until.0 / MINUTE));
        assert_eq!((row.map(further), resumed.next.map(|next| next.0 / MINUTE)), (expect, next));
        assert_eq!((resumed.paused, resumed.resumed_at), (None, Some(Timestamp(now))));
    };
    check(&paused, 9 * MINUTE, None, Some(10));
    check(&paused, 10 * MINUTE, Some(None), Some(11));
    check(&paused, 15 * MINUTE, Some(Some((5, 15))), Some(16));
    paused.definition.rules.ends_at = Some(Timestamp(13 * MINUTE));
    check(&paused, 15 * MINUTE, Some(Some((2, 12))), None);
}

#[test]
fn an_invalid_definition_names_its_field() {
    let check = |change: fn(&mut ScheduleDefinition), expect: Option<&str>| {
        let mut definition = schedule(rules(Misfire::RunOnce, Overlap::Skip)).definition;
        change(&mut definition);
        assert_eq!(validate_definition(&definition).err().map(|(field, _)| field), expect);
    };
    check(|_| {}, None);
    check(|definition| definition.task.text = " ".into(), Some("text"));
    check(|definition| definition.task.text = "x".repeat(70_000).into(), Some("text"));
    check(|definition| definition.task.session = Some("".into()), Some("session"));
    check(|definition| definition.task.session = Some("x".repeat(4_097).into()), Some("session"));
    check(|definition| definition.task.workspace = Some("x".repeat(4_097).into()), Some("workspace"));
    check(
        |definition| definition.task.deliver_to = Some(["x".repeat(4_097).into()].into()),
        Some("deliver_to"),
    );
    check(|definition| definition.task.deliver_to = Some(vec!["x".into(); 101].into()), Some("deliver_to"));
    let long_cron = |definition: &mut ScheduleDefinition| {
        definition.timing = Timing::Cron { expression: "* ".repeat(3_000).into(), zone: "UTC".into() };
    };
    check(long_cron, Some("cron"));
    check(|definition| definition.rules.pause_after = Some(0), Some("pause_after"));
    check(|definition| definition.rules.pause_after = Some(101), Some("pause_after"));
    let quick = |definition: &mut ScheduleDefinition| {
        definition.timing = Timing::Every { interval_ms: 999, anchor: Timestamp(0) };
    };
    check(quick, Some("every"));
}

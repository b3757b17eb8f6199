//! The plan of a seed: the schedules, and the lives of the process with what happens in each.

use hermod_actors::model::{
    Misfire, Overlap, ScheduleDefinition, ScheduleName, ScheduleRules, ScheduledTask, Timestamp, Timing,
};

use super::{calendar::ZONES, name};
use crate::simulation::seeded_rng::SeededRng;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// All that a seed determines.
#[derive(Debug)]
pub(super) struct WeekPlan {
    pub(super) seed: u64,
    pub(super) starts_at: Timestamp,
    pub(super) schedules: Vec<PlannedSchedule>,
    pub(super) lives: Vec<Life>,
}

#[derive(Debug)]
pub(super) struct PlannedSchedule {
    pub(super) name: ScheduleName,
    pub(super) definition: ScheduleDefinition,
}

/// One life of the process.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) lasts_ms: u64,
    /// The process ends at the commit with this number, perhaps only when that is written.
    pub(super) killed_at: Option<(u64, bool)>,
    /// What the clock gains until the next life.
    pub(super) downtime_ms: i64,
    /// What happens, with its distance from the event before.
    pub(super) events: Vec<(u64, WeekEvent)>,
    /// How long a model call takes.
    pub(super) answer_ms: u64,
    /// Of 100 runs, how many fail.
    pub(super) failing: u64,
    /// Of 100 submissions, how many are refused for now, for ever, and are slow.
    pub(super) refused: (u64, u64, u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum WeekEvent {
    /// The wall clock jumps.
    Jump(i64),
    Pause(usize),
    Resume(usize),
    RunNow(usize),
    /// The actor crashes.
    Crash,
}

impl WeekPlan {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let (_, _, change, _) = rng.pick(&ZONES);
        let starts_at = Timestamp(change - i64::try_from(rng.between(1, 4) * DAY_MS).unwrap_or_default());
        // Very many occurrences: the process lives for minutes, and is down for days.
        let is_dense = rng.chance(15);
        let schedules = (0..ZONES.len()).map(|n| schedule(n, is_dense, starts_at, &mut rng)).collect();
        let mut lives: Vec<_> = (0..rng.between(3, 8)).map(|_| life(is_dense, &mut rng)).collect();
        // The last life catches up.
        lives.push(Life {
            lasts_ms: if is_dense { 10 * MINUTE_MS } else { DAY_MS },
            killed_at: None,
            downtime_ms: 0,
            events: (0..ZONES.len()).map(|n| (1_000, WeekEvent::Resume(n))).collect(),
            answer_ms: 1_000,
            failing: 0,
            refused: (0, 0, 0),
        });
        Self { seed, starts_at, schedules, lives }
    }
}

fn schedule(n: usize, is_dense: bool, starts_at: Timestamp, rng: &mut SeededRng) -> PlannedSchedule {
    let (zone, ..) = ZONES[n];
    let timing = match rng.below(4) {
        0 => Timing::Cron { expression: format!("{} * * * *", rng.below(60)).into(), zone: zone.into() },
        1 => {
            let expression = format!("{} {} * * *", rng.below(60), rng.below(5)).into();
            Timing::Cron { expression, zone: zone.into() }
        }
        _ if is_dense => Timing::Every { interval_ms: rng.between(10, 60) * 1_000, anchor: Timestamp(0) },
        _ => Timing::Every { interval_ms: rng.between(20, 300) * MINUTE_MS, anchor: Timestamp(0) },
    };
    let days = rng.between(1, 6) * DAY_MS + rng.below(DAY_MS);
    let rules = ScheduleRules {
        misfire: rng.pick(&Misfire::ALL),
        grace_ms: rng.pick(&[0, 60_000, 600_000]),
        overlap: rng.pick(&Overlap::ALL),
        jitter_ms: rng.pick(&[0, 0, 30_000, 3_600_000]),
        ends_at: rng.chance(20).then(|| starts_at.plus_ms(days)),
        pause_after: rng.chance(40).then(|| u32::try_from(rng.between(1, 3)).unwrap_or(1)),
    };
    let task = ScheduledTask {
        session: rng.chance(30).then(|| format!("key {n}").into()),
        deliver_to: Some(["ops".into()].into()),
        ..ScheduledTask::new("Look")
    };
    PlannedSchedule { name: name(n), definition: ScheduleDefinition { timing, task, rules } }
}

fn life(is_dense: bool, rng: &mut SeededRng) -> Life {
    let lasts_ms = if is_dense { rng.between(1, 12) * MINUTE_MS } else { rng.between(4, 40) * HOUR_MS };
    let downtime = match rng.below(4) {
        0 => 0,
        1 => rng.below(10 * MINUTE_MS),
        2 => rng.below(6 * HOUR_MS),
        _ => rng.below(3 * DAY_MS),
    };
    let back = rng.chance(10);
    let downtime = i64::try_from(downtime).unwrap_or_default();
    let events = (0..rng.below(4)).map(|_| (rng.below(lasts_ms / 3), event(rng))).collect();
    Life {
        lasts_ms,
        killed_at: rng.chance(60).then(|| (rng.below(if is_dense { 60 } else { 150 }), rng.chance(50))),
        downtime_ms: if back { -downtime } else { downtime },
        events,
        answer_ms: rng.pick(&[10, 5_000, 10 * MINUTE_MS, 3 * HOUR_MS]),
        failing: rng.pick(&[0, 20, 100]),
        refused: rng.pick(&[(0, 0, 0), (0, 0, 30), (20, 5, 10), (90, 0, 0)]),
    }
}

fn event(rng: &mut SeededRng) -> WeekEvent {
    let n = rng.index(ZONES.len());
    match rng.below(7) {
        0 | 1 => {
            let ms = i64::try_from(rng.pick(&[5_000, 10 * MINUTE_MS, 3 * HOUR_MS, 2 * DAY_MS]))
                .unwrap_or_default();
            WeekEvent::Jump(if rng.chance(50) { -ms } else { ms })
        }
        2 => WeekEvent::Pause(n),
        5 => WeekEvent::Crash,
        3 | 4 => WeekEvent::Resume(n),
        _ => WeekEvent::RunNow(n),
    }
}

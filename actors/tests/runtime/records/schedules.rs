//! Arbitrary schedules and occurrences.

use hermod_actors::model::{
    FurtherOccurrences, Misfire, Occurrence, OccurrenceId, OccurrenceState, Overlap, Schedule,
    ScheduleDefinition, ScheduleName, SchedulePause, ScheduleRules, ScheduleSource, ScheduledTask, Timing,
};
use proptest::{prelude::*, sample::select};

use super::values::{Made, agent, maybe, number, run, shared, small, time};

pub(crate) fn schedule_name() -> Made<ScheduleName> {
    "[a-z0-9][a-z0-9_-]{0,8}".prop_map(|name| name.parse().expect("a name")).boxed()
}

pub(crate) fn occurrence() -> Made<OccurrenceId> {
    (schedule_name(), time()).prop_map(|(schedule, at)| OccurrenceId { schedule, at }).boxed()
}

pub(crate) fn occurrence_row() -> Made<Occurrence> {
    let state = prop_oneof![
        run().prop_map(|run| OccurrenceState::Ran { run }),
        shared().prop_map(|reason| OccurrenceState::Missed { reason }),
        shared().prop_map(|reason| OccurrenceState::Skipped { reason }),
    ];
    let further = (number(), time()).prop_map(|(count, until)| FurtherOccurrences { count, until });
    (occurrence(), state, time(), maybe(further.boxed()))
        .prop_map(|(id, state, recorded_at, further)| Occurrence { id, state, recorded_at, further })
        .boxed()
}

fn timing() -> Made<Timing> {
    prop_oneof![
        (number(), time()).prop_map(|(interval_ms, anchor)| Timing::Every { interval_ms, anchor }),
        (shared(), shared()).prop_map(|(expression, zone)| Timing::Cron { expression, zone }),
        time().prop_map(|at| Timing::Once { at }),
    ]
    .boxed()
}

fn rules() -> Made<ScheduleRules> {
    let choices = (select(Misfire::ALL.to_vec()), select(Overlap::ALL.to_vec()));
    (choices, number(), number(), maybe(time()), maybe(small()))
        .prop_map(|((misfire, overlap), grace_ms, jitter_ms, ends_at, pause_after)| ScheduleRules {
            misfire,
            grace_ms,
            overlap,
            jitter_ms,
            ends_at,
            pause_after,
        })
        .boxed()
}

fn task() -> Made<ScheduledTask> {
    let texts = (shared(), maybe(shared()), maybe(shared()), maybe(shared()), maybe(shared()));
    let targets = maybe(shared()).prop_map(|target| target.map(|target| [target].into()));
    (texts, any::<bool>(), maybe(agent()), targets, maybe(number()))
        .prop_map(|((text, session, model, workspace, budget), heartbeat, agent, deliver_to, timeout_ms)| {
            ScheduledTask {
                text,
                heartbeat,
                agent,
                session,
                model,
                workspace,
                deliver_to,
                timeout_ms,
                budget,
            }
        })
        .boxed()
}

pub(crate) fn schedule() -> Made<Schedule> {
    let definition = (timing(), task(), rules()).prop_map(|(timing, task, rules)| ScheduleDefinition {
        timing,
        task,
        rules,
    });
    let paused = (time(), shared()).prop_map(|(since, reason)| SchedulePause { since, reason });
    let source = select(vec![ScheduleSource::Config, ScheduleSource::Command]);
    let times = (time(), maybe(time()), maybe(time()));
    (schedule_name(), source, definition, times, maybe(paused.boxed()), number())
        .prop_map(|(name, source, definition, (created_at, next, resumed_at), paused, revision)| Schedule {
            name,
            source,
            definition,
            created_at,
            next,
            paused,
            resumed_at,
            revision,
        })
        .boxed()
}

//! Requests about schedules, on virtual time.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::{
    RunRequest, Runtime, ScheduleError,
    model::{
        OccurrenceId, OccurrenceQuery, OccurrenceState, RunId, ScheduleDefinition, ScheduleName,
        ScheduleRules, ScheduleSource, ScheduledTask, Timestamp, Timing,
    },
    port::{OccurrenceError, OccurrenceSubmitter},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ZoneCalendar, says, world};

const MINUTE: u64 = 60_000;

#[derive(Debug, Default)]
struct RequestSubmitter(OnceLock<Weak<Runtime>>);

impl OccurrenceSubmitter for RequestSubmitter {
    fn submit(
        &self,
        occurrence: OccurrenceId,
        task: ScheduledTask,
    ) -> BoxFuture<'static, Result<RunId, OccurrenceError>> {
        let runtime = self.0.get().and_then(Weak::upgrade).unwrap();
        async move {
            let request = RunRequest { occurrence: Some(occurrence), ..RunRequest::new(task.text) };
            let submitted = runtime.submit(request).await;
            submitted.map(|run| run.run).map_err(|error| OccurrenceError::Never(error.to_string()))
        }
        .boxed()
    }
}

async fn start() -> Arc<Runtime> {
    let provider = ScriptedProvider::new(Duration::from_secs(1), |_| Ok(says("done")));
    let runtime = Runtime::start(world(Arc::new(MemoryJournal::new()), provider, Vec::new())).await;
    Arc::new(runtime.unwrap())
}

fn serve(runtime: &Arc<Runtime>) {
    let submitter = RequestSubmitter::default();
    submitter.0.get_or_init(|| Arc::downgrade(runtime));
    runtime.start_scheduler(Arc::new(ZoneCalendar), Arc::new(submitter));
}

fn every(minutes: u64) -> ScheduleDefinition {
    let task = ScheduledTask::new("Look");
    let timing = Timing::Every { interval_ms: minutes * MINUTE, anchor: Timestamp(0) };
    ScheduleDefinition { timing, task, rules: ScheduleRules::default() }
}

fn name() -> ScheduleName {
    "s".parse().unwrap()
}

async fn put(
    runtime: &Runtime,
    source: ScheduleSource,
    definition: ScheduleDefinition,
) -> Result<u64, ScheduleError> {
    let put = runtime.put_schedule(name(), source, definition, &ZoneCalendar).await;
    put.map(|schedule| schedule.revision)
}

/// The states of the occurrences, the oldest first.
async fn history(runtime: &Runtime) -> Vec<&'static str> {
    let rows = runtime.schedule_history(OccurrenceQuery::of(name(), 100)).await.unwrap();
    let state = |state: &OccurrenceState| match state {
        OccurrenceState::Ran { .. } => "ran",
        OccurrenceState::Missed { .. } => "missed",
        OccurrenceState::Skipped { .. } => "skipped",
    };
    rows.iter().rev().map(|row| state(&row.state)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_put_once_and_its_source_counts() {
    use ScheduleSource::{Command, Config};
    let runtime = start().await;
    assert_eq!(runtime.schedule(&name()).await, Err(ScheduleError::Unknown(name())));
    assert_eq!(put(&runtime, Command, every(5)).await, Ok(1));
    assert_eq!(put(&runtime, Command, every(5)).await, Ok(1));
    let next = runtime.schedule(&name()).await.unwrap().next;
    tokio::time::sleep(Duration::from_mins(7)).await;
    let mut other = every(5);
    other.task.text = "Look again".into();
    assert_eq!(put(&runtime, Command, other).await, Ok(2));
    assert_eq!(
        runtime.schedule(&name()).await.unwrap().next,
        next,
        "no scheduler runs, and the timing is the same"
    );
    assert_eq!(put(&runtime, Config, every(6)).await, Ok(3));
    assert!(runtime.schedule(&name()).await.unwrap().next > next);
    assert_eq!(put(&runtime, Command, every(5)).await, Err(ScheduleError::Configured(name())));
    let removed = runtime.remove_schedule(&name(), Command).await;
    assert_eq!(removed, Err(ScheduleError::Configured(name())));
    assert_eq!(runtime.remove_schedule(&name(), Config).await, Ok(()));
    assert_eq!(runtime.schedules().await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_with_its_field() {
    let runtime = start().await;
    let check = async |change: fn(&mut ScheduleDefinition), field: &str| {
        let mut definition = every(5);
        change(&mut definition);
        match put(&runtime, ScheduleSource::Command, definition).await {
            Err(ScheduleError::Invalid { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{other:?}"),
        }
    };
    check(|definition| definition.task.text = " ".into(), "text").await;
    check(|definition| definition.timing = Timing::Once { at: Timestamp(5) }, "timing").await;
    let nowhere = |definition: &mut ScheduleDefinition| {
        definition.timing = Timing::Cron { expression: "0 0".into(), zone: "Nowhere".into() };
    };
    check(nowhere, "timing").await;
    assert_eq!(runtime.run_schedule_now(&name()).await, Err(ScheduleError::NotStarted));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_runs_pauses_and_runs_when_a_person_asks() {
    let runtime = start().await;
    assert_eq!(runtime.scheduler_health(), None);
    serve(&runtime);
    put(&runtime, ScheduleSource::Command, every(5)).await.unwrap();
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(history(&runtime).await, ["ran", "ran"]);
    runtime.pause_schedule(&name(), "a holiday").await.unwrap();
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(history(&runtime).await, ["ran", "ran"]);
    let health = runtime.scheduler_health().unwrap();
    assert_eq!((health.schedules, health.paused, health.next_due), (1, 1, None));
    assert!(health.tick_age_ms <= MINUTE);
    let run = runtime.run_schedule_now(&name()).await.unwrap();
    assert_eq!(runtime.row(run).await.unwrap().schedule, Some(name()));
    let resumed = runtime.resume_schedule(&name(), &ZoneCalendar).await.unwrap();
    assert!(resumed.paused.is_none());
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(history(&runtime).await, ["ran", "ran", "skipped", "ran", "ran"]);
    let rows = runtime.schedule_history(OccurrenceQuery::of(name(), 100)).await.unwrap();
    assert_eq!(rows[2].further.unwrap().count, 3);
    runtime.remove_schedule(&name(), ScheduleSource::Command).await.unwrap();
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(history(&runtime).await.len(), 5, "its history stays");
    put(&runtime, ScheduleSource::Command, every(5)).await.unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(history(&runtime).await.len(), 6, "it is served again");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_fails_is_paused() {
    let provider = ScriptedProvider::new(Duration::from_secs(1), |_| {
        Err(hermod_actors::model::Failure::new(hermod_actors::model::FailureClass::InvalidRequest, "no"))
    });
    let runtime = Runtime::start(world(Arc::new(MemoryJournal::new()), provider, Vec::new())).await;
    let runtime = Arc::new(runtime.unwrap());
    serve(&runtime);
    let rules = ScheduleRules { pause_after: Some(2), ..ScheduleRules::default() };
    put(&runtime, ScheduleSource::Command, ScheduleDefinition { rules, ..every(5) }).await.unwrap();
    tokio::time::sleep(Duration::from_mins(40)).await;
    assert_eq!(history(&runtime).await, ["ran", "ran"]);
    let paused = runtime.schedule(&name()).await.unwrap().paused.unwrap();
    assert!(paused.reason.starts_with("2 runs in a row did not complete"), "{}", paused.reason);
    runtime.resume_schedule(&name(), &ZoneCalendar).await.unwrap();
    tokio::time::sleep(Duration::from_mins(6)).await;
    assert_eq!(history(&runtime).await, ["ran", "ran", "skipped", "ran"], "failures count from then on");
    assert!(runtime.schedule(&name()).await.unwrap().paused.is_none());
}

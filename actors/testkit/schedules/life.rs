//! One life of the process: a runtime on the journal, its events, and its end.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join},
};
use hermod_actors::{
    RunError, RunRequest, Runtime, ScheduleError, SessionChoice, SubmitError,
    fault_injection::{ActorFault, ActorKind, inject},
    model::{
        Failure, FailureClass, Lane, OccurrenceId, RunId, RunSpec, ScheduleSource, ScheduledTask, Timestamp,
    },
    port::{Clock, OccurrenceError, OccurrenceSubmitter},
};
use tokio::{sync::Notify, time::sleep};

use super::{
    calendar::ZoneCalendar,
    journal::{Watched, WatchedJournal},
    plan::{Life, WeekEvent, WeekPlan},
};
use crate::{MemoryJournal, ScriptedProvider, VirtualClock, says, simulation::seeded_rng::SeededRng, world};

/// How a life has ended.
#[derive(Debug)]
pub(super) struct EndOfLife {
    pub(super) wall: Timestamp,
    pub(super) was_killed: bool,
    pub(super) jumps: usize,
}

/// A clock whose wall time jumps.
#[derive(Debug)]
struct JumpingClock {
    inner: VirtualClock,
    offset: AtomicI64,
}

impl Clock for JumpingClock {
    fn at(&self) -> Timestamp {
        Timestamp(self.inner.at().0 + self.offset.load(Ordering::SeqCst))
    }

    fn monotonic_ms(&self) -> u64 {
        self.inner.monotonic_ms()
    }

    fn random(&self) -> u128 {
        self.inner.random()
    }
}

/// Submits runs, as a host does, and refuses some.
#[derive(Debug)]
struct PlannedSubmitter {
    runtime: OnceLock<Weak<Runtime>>,
    rng: Mutex<SeededRng>,
    refused: (u64, u64, u64),
    watched: Arc<Mutex<Watched>>,
}

impl OccurrenceSubmitter for PlannedSubmitter {
    fn submit(
        &self,
        occurrence: OccurrenceId,
        task: ScheduledTask,
    ) -> BoxFuture<'static, Result<RunId, OccurrenceError>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).sees_submission(&occurrence);
        let (not_now, never, slow) = self.refused;
        let drawn = self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(100);
        let runtime = self.runtime.get().and_then(Weak::upgrade);
        async move {
            let Some(runtime) = runtime else { return Err(OccurrenceError::NotNow("it ends".into())) };
            if drawn < not_now {
                return Err(OccurrenceError::NotNow("the disk is full".into()));
            }
            if drawn < not_now + never {
                return Err(OccurrenceError::Never("there is no such agent".into()));
            }
            if drawn < not_now + never + slow {
                sleep(Duration::from_secs(drawn * 20)).await;
            }
            // Another process may submit it at the same time.
            if drawn.is_multiple_of(4) {
                let first = submit(&runtime, occurrence.clone(), &task);
                return join(first, submit(&runtime, occurrence, &task)).await.0;
            }
            submit(&runtime, occurrence, &task).await
        }
        .boxed()
    }
}

async fn submit(
    runtime: &Runtime,
    occurrence: OccurrenceId,
    task: &ScheduledTask,
) -> Result<RunId, OccurrenceError> {
    let defaults = runtime.defaults().spec.clone();
    let request = RunRequest {
        session: task.session.clone().map_or(SessionChoice::New, SessionChoice::Key),
        occurrence: Some(occurrence),
        spec: Some(RunSpec { lane: Lane::Cron, ..defaults }),
        ..RunRequest::new(Arc::clone(&task.text))
    };
    match runtime.submit(request).await {
        Ok(accepted) => Ok(accepted.run),
        Err(RunError::NotAccepted(SubmitError::OccurrenceLeftOut(_))) => Err(OccurrenceError::LeftOut),
        Err(error) => Err(OccurrenceError::NotNow(error.to_string())),
    }
}

/// What the parts of a life need.
struct WeekScene<'a> {
    plan: &'a WeekPlan,
    life: &'a Life,
    seed: u64,
    clock: Arc<JumpingClock>,
    watched: Arc<Mutex<Watched>>,
}

impl WeekScene<'_> {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn violation(&self, text: String) {
        self.watched().violations.push(text);
    }
}

/// Lives a life of the plan from this wall time on, on virtual time of its own.
pub(super) fn live(
    plan: &WeekPlan,
    number: usize,
    (journal, wall): (&MemoryJournal, Timestamp),
    watched: &Arc<Mutex<Watched>>,
) -> EndOfLife {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("tokio does not start: {error}"));
    runtime.block_on(async {
        let seed = plan.seed.wrapping_mul(1_000).wrapping_add(number as u64);
        let clock = Arc::new(JumpingClock { inner: VirtualClock::new(seed), offset: AtomicI64::new(0) });
        clock.offset.store(wall.0 - clock.inner.at().0, Ordering::SeqCst);
        let life = &plan.lives[number];
        let scene = WeekScene { plan, life, seed, clock, watched: Arc::clone(watched) };
        let killed = Arc::<Notify>::default();
        let journal = WatchedJournal {
            inner: journal.clone(),
            clock: Arc::clone(&scene.clock) as Arc<dyn Clock>,
            watched: Arc::clone(watched),
            killed_at: life.killed_at,
            commits: Arc::new(AtomicU64::new(0)),
            killed: Arc::clone(&killed),
        };
        let mut jumps = 0;
        let was_killed = tokio::select! {
            () = killed.notified() => true,
            () = act(&scene, journal, &mut jumps) => false,
        };
        EndOfLife { wall: scene.clock.at(), was_killed, jumps }
    })
}

/// A runtime with a model that fails as planned.
async fn start(scene: &WeekScene<'_>, journal: WatchedJournal) -> Option<Arc<Runtime>> {
    let (failing, asked) = (scene.life.failing, AtomicU64::new(scene.seed));
    let provider = ScriptedProvider::new(Duration::from_millis(scene.life.answer_ms), move |_| {
        let drawn = SeededRng::new(asked.fetch_add(1, Ordering::SeqCst)).below(100);
        match drawn < failing {
            true => Err(Failure::new(FailureClass::InvalidRequest, "no")),
            false => Ok(says("done")),
        }
    });
    let mut dependencies = world(Arc::new(journal), provider, Vec::new());
    dependencies.clock = Arc::clone(&scene.clock) as Arc<dyn Clock>;
    Runtime::start(dependencies).await.ok().map(Arc::new)
}

async fn act(scene: &WeekScene<'_>, journal: WatchedJournal, jumps: &mut usize) {
    let Some(runtime) = start(scene, journal).await else { return };
    let rng = Mutex::new(SeededRng::new(scene.seed));
    let (refused, watched) = (scene.life.refused, Arc::clone(&scene.watched));
    let submitter = Arc::new(PlannedSubmitter { runtime: OnceLock::new(), rng, refused, watched });
    submitter.runtime.get_or_init(|| Arc::downgrade(&runtime));
    for schedule in &scene.plan.schedules {
        let (name, definition) = (schedule.name.clone(), schedule.definition.clone());
        let put = runtime.put_schedule(name, ScheduleSource::Config, definition, &ZoneCalendar).await;
        // A schedule that has ended has no time any more.
        match put {
            Ok(_) | Err(ScheduleError::Invalid { .. }) => {}
            Err(error) => scene.violation(format!("a put fails: {error}")),
        }
    }
    if let Err(error) = runtime.revive_all().await {
        scene.violation(format!("the runs are not revived: {error}"));
    }
    runtime.start_scheduler(Arc::new(ZoneCalendar), submitter);
    for (ms, event) in &scene.life.events {
        sleep(Duration::from_millis(*ms)).await;
        scene.watched().sees_time(scene.clock.at());
        *jumps += usize::from(matches!(event, WeekEvent::Jump(_)));
        match perform(scene, &runtime, *event).await {
            Ok(()) | Err(ScheduleError::NotNow(_) | ScheduleError::Never(_) | ScheduleError::Unknown(_)) => {}
            Err(error) => scene.violation(format!("{event:?} fails: {error}")),
        }
    }
    sleep(Duration::from_millis(scene.life.lasts_ms)).await;
}

async fn perform(scene: &WeekScene<'_>, runtime: &Runtime, event: WeekEvent) -> Result<(), ScheduleError> {
    let name = |n: usize| &scene.plan.schedules[n].name;
    match event {
        WeekEvent::Jump(ms) => {
            scene.clock.offset.fetch_add(ms, Ordering::SeqCst);
            Ok(())
        }
        WeekEvent::Crash => {
            inject(runtime, ActorKind::Scheduler, ActorFault::Error).await;
            Ok(())
        }
        WeekEvent::Pause(n) => runtime.pause_schedule(name(n), "a person wants it").await.map(drop),
        WeekEvent::Resume(n) => runtime.resume_schedule(name(n), &ZoneCalendar).await.map(drop),
        WeekEvent::RunNow(n) => {
            let id = OccurrenceId { schedule: name(n).clone(), at: scene.clock.at() };
            scene.watched().by_person.insert(id);
            runtime.run_schedule_now(name(n)).await.map(drop)
        }
    }
}

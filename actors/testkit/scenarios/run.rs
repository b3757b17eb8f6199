//! Runs a fault scenario and collects what can be observed.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    AdapterFault, FaultAction, FaultScenario, FaultTarget, ObservedOutcome,
    faulty_adapters::{InjectionClock, TARGET_INPUT, scenario_dependencies},
};
use crate::{ActorKind, FaultyJournal, JournalFault, MemoryJournal, inject};
use hermod_actors::{
    AcceptedRun, RunError, RunRequest, Runtime, RuntimeEnd,
    model::{Body, EventBody, Kind, RunId, StopReason},
    port::Journal,
};

/// Number of the commit that meets a fault: by then every run is accepted and at work.
const FAULTY_COMMIT: usize = 12;
/// Most records after the fault that are collected.
const MAX_RECORDS: usize = 3;

impl FaultScenario {
    /// Runs the scenario in a runtime of its own. If that runtime ends, a second one finishes the runs.
    pub async fn run(&self) -> ObservedOutcome {
        let journal = MemoryJournal::new();
        let clock = Arc::new(InjectionClock::new(journal.clone()));
        let inner: Arc<dyn Journal> = Arc::new(journal.clone());
        let store = match self.action {
            FaultAction::Commit(fault) => FaultyJournal::new(inner, fault, FAULTY_COMMIT),
            FaultAction::Actor(..) | FaultAction::ActorThrice(_) | FaultAction::Call(_) => {
                FaultyJournal::sound(inner)
            }
        };
        let began = Instant::now();
        let world = scenario_dependencies(Arc::new(store.clone()), self.action, &clock);
        let runtime = Runtime::start(world).await.expect("the runtime starts");
        let (mut runs, mut accepted) = (Vec::new(), None);
        for task in [TARGET_INPUT, "sibling", "sibling"] {
            runs.push(runtime.submit(RunRequest::new(task)).await.expect("it is accepted"));
            accepted.get_or_insert_with(|| began.elapsed());
        }
        clock.set_target(runs[0].session);
        let mut run = ScenarioRun {
            store: &store,
            runtime: &runtime,
            target: runs[0],
            clock: &clock,
            records: Vec::new(),
        };
        let progress = run.inject(self.action, accepted.expect("there were submissions")).await;
        let records = run.records;
        let mut seen = ObservedOutcome {
            restarted: Vec::new(),
            records,
            outcome: String::new(),
            siblings: Vec::new(),
            ends: Vec::new(),
            terminated: None,
            progress,
        };
        let runs: Vec<RunId> = runs.iter().map(|accepted| accepted.run).collect();
        if let Some(runtime) = seen.collect_outcomes(runtime, &runs).await {
            seen.terminated = Some(runtime);
            let world = scenario_dependencies(
                Arc::new(journal.reopened()),
                FaultAction::Commit(JournalFault::Error),
                &clock,
            );
            let runtime = Runtime::start(world).await.expect("the next runtime starts");
            runtime.revive_all().await.expect("the store is read");
            let again = seen.collect_outcomes(runtime, &runs).await;
            assert_eq!(again, None, "nothing is wrong with the next runtime");
        }
        seen
    }
}

/// One scenario under way.
struct ScenarioRun<'a> {
    runtime: &'a Runtime,
    target: AcceptedRun,
    clock: &'a InjectionClock,
    store: &'a FaultyJournal,
    /// Kinds of the victim's records after the fault.
    records: Vec<&'static str>,
}

impl ScenarioRun<'_> {
    /// Causes the fault; returns the time that becomes [`ObservedOutcome::progress`].
    async fn inject(&mut self, action: FaultAction, first_accepted: Duration) -> Duration {
        match action {
            FaultAction::Commit(JournalFault::Slow(_)) => first_accepted,
            FaultAction::Commit(_) => {
                self.runtime.wait_for_end().await;
                self.store.met_at().expect("the fault was met").elapsed()
            }
            FaultAction::Actor(target, how) => {
                self.wait_for_records(2, Kind::CallEnded).await;
                self.clock.record();
                inject(self.runtime, self.actor(target), how).await;
                self.wait_for_recovery(target).await
            }
            FaultAction::ActorThrice(how) => {
                // The session waits in its third iteration; each revival starts the call again.
                let mut progress = None;
                for calls in 3..6 {
                    self.wait_for_records(calls, Kind::ModelStarted).await;
                    self.clock.record();
                    inject(self.runtime, ActorKind::Session(self.target.session), how).await;
                    if progress.is_none() {
                        progress = Some(self.wait_for_progress().await);
                    }
                }
                progress.expect("it was struck at least once")
            }
            FaultAction::Call(AdapterFault::ToolIgnoresStop) => {
                self.wait_for_records(3, Kind::CallStarted).await;
                while self.clock.injection_point().is_none() {
                    tokio::task::yield_now().await;
                }
                let began = Instant::now();
                self.runtime.stop(self.target.run, StopReason::Command).await.expect("it is stopped");
                self.wait_for_progress().await;
                began.elapsed()
            }
            FaultAction::Call(_) => self.wait_for_progress().await,
        }
    }

    fn actor(&self, target: FaultTarget) -> ActorKind {
        match target {
            FaultTarget::Root => ActorKind::Root,
            FaultTarget::Persistence => ActorKind::Persistence,
            FaultTarget::ProviderSupervisor => ActorKind::ProviderSupervisor,
            FaultTarget::Provider => ActorKind::Provider,
            FaultTarget::ToolExecutor => ActorKind::ToolExecutor,
            FaultTarget::Compressor => ActorKind::Compressor,
            FaultTarget::SessionSupervisor => ActorKind::SessionSupervisor,
            FaultTarget::TargetSession => ActorKind::Session(self.target.session),
        }
    }

    /// Waits until the failed actor has recovered or the runtime has ended; returns the time since the fault.
    async fn wait_for_recovery(&mut self, target: FaultTarget) -> Duration {
        match target {
            FaultTarget::Root | FaultTarget::Persistence => return self.wait_for_end().await,
            FaultTarget::SessionSupervisor | FaultTarget::TargetSession => {
                return self.wait_for_progress().await;
            }
            // A provider's mailbox is lost with it, so the query repeats until the next provider answers.
            FaultTarget::ProviderSupervisor | FaultTarget::Provider => {
                while self.runtime.providers().await.is_empty() {}
            }
            FaultTarget::ToolExecutor => while self.runtime.tool_status().await.is_none() {},
            FaultTarget::Compressor => while self.runtime.compressor_status().await.is_none() {},
        }
        self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        self.clock.injection_point().expect("the fault was brought about").at.elapsed()
    }

    async fn wait_for_end(&self) -> Duration {
        let end = self.runtime.wait_for_end().await;
        assert_ne!(end, RuntimeEnd::Suspended);
        self.elapsed()
    }

    /// Waits until the victim has `count` records of this kind.
    async fn wait_for_records(&self, count: usize, kind: Kind) {
        let mut watch = self.runtime.watch(self.target.session, 1);
        let mut seen = 0;
        while seen < count {
            if let EventBody::Recorded { record, .. } = watch.next().await.expect("the store is read").body {
                seen += usize::from(record.body.kind() == kind);
            }
        }
    }

    /// Collects the victim's records after the fault, up to `MAX_RECORDS` or the run's end. Returns the time from the
    /// fault to the first one.
    async fn wait_for_progress(&mut self) -> Duration {
        let mut watch = self.runtime.watch(self.target.session, 1);
        let mut first = None;
        while self.records.len() < MAX_RECORDS {
            let event = watch.next().await.expect("the store is read");
            let (seq, EventBody::Recorded { record }) = (event.seq, event.body) else { continue };
            let Some(point) = self.clock.injection_point().filter(|point| seq > point.last) else {
                continue;
            };
            first.get_or_insert_with(|| point.at.elapsed());
            self.records.push(record.body.kind().name());
            if matches!(record.body, Body::RunEnded(_)) {
                break;
            }
        }
        first.expect("there are records after the fault")
    }
}

impl ObservedOutcome {
    /// Waits for the ends of all runs, then suspends the runtime. Returns the reason if the runtime ends first.
    async fn collect_outcomes(&mut self, runtime: Runtime, runs: &[RunId]) -> Option<RuntimeEnd> {
        let mut outcomes = Vec::new();
        for run in runs {
            match runtime.wait(*run, None).await {
                Ok(result) => outcomes.push(result),
                Err(RunError::Terminated(reason)) => return Some(reason),
                Err(error) => panic!("{error}"),
            }
        }
        let tree = runtime.supervision_tree().await.expect("the runtime is alive");
        let parts = tree.children.into_iter().map(|part| (part.name, part.restarts));
        let sessions = tree.sessions.iter().map(|session| ("Session".to_owned(), session.crashes));
        self.restarted = parts.chain(sessions).filter(|(_, restarts)| *restarts > 0).collect();
        for result in &outcomes {
            let journal = runtime.journal(result.session, 1).await.expect("the store is read");
            let ends = journal.iter().filter(
                |(_, record)| matches!(&record.body, Body::RunEnded(ended) if ended.run == result.run),
            );
            self.ends.push(ends.count());
        }
        let mut outcomes = outcomes.into_iter().map(|result| result.ended.to_string());
        self.outcome = outcomes.next().expect("the victim's is the first");
        self.siblings = outcomes.collect();
        runtime.suspend().await;
        None
    }
}

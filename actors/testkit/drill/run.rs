use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Deed, Drill, Misdeed, Seen, Who,
    odd::{Moment, VICTIM, world_of},
};
use crate::{
    Accepted, RunError, RunRequest, Runtime, Terminated,
    model::{Body, EventBody, Kind, RunId, StopReason},
    port::Journal,
    testkit::{FaultyJournal, JournalFault, MemoryJournal, Part, strike},
};

/// The commit that meets a fault: by then every run is accepted and at work.
const FAULTY_COMMIT: usize = 12;
/// How many records after the fault are looked at.
const RECORDS: usize = 3;

impl Drill {
    /// Does it, in a runtime of its own.
    pub async fn run(&self) -> Seen {
        let journal = MemoryJournal::new();
        let moment = Arc::new(Moment::new(journal.clone()));
        let inner: Arc<dyn Journal> = Arc::new(journal.clone());
        let store = match self.deed {
            Deed::Commit(fault) => FaultyJournal::new(inner, fault, FAULTY_COMMIT),
            Deed::Strike(..) | Deed::StrikeThrice(_) | Deed::Call(_) => FaultyJournal::sound(inner),
        };
        let began = Instant::now();
        let world = world_of(Arc::new(store.clone()), self.deed, &moment);
        let runtime = Runtime::start(world).await.expect("the runtime starts");
        let (mut runs, mut accepted) = (Vec::new(), None);
        for task in [VICTIM, "sibling", "sibling"] {
            runs.push(runtime.submit(RunRequest::new(task)).await.expect("it is accepted"));
            accepted.get_or_insert_with(|| began.elapsed());
        }
        moment.concerns(runs[0].session);
        let mut site =
            Site { store: &store, runtime: &runtime, victim: runs[0], moment: &moment, records: Vec::new() };
        let progress = site.fault(self.deed, accepted.expect("there were submissions")).await;
        let records = site.records;
        let mut seen = Seen {
            restarted: Vec::new(),
            records,
            outcome: String::new(),
            siblings: Vec::new(),
            ends: Vec::new(),
            terminated: None,
            progress,
        };
        let runs: Vec<RunId> = runs.iter().map(|accepted| accepted.run).collect();
        if let Some(runtime) = seen.outcomes(runtime, &runs).await {
            seen.terminated = Some(runtime);
            let world = world_of(Arc::new(journal.reopened()), Deed::Commit(JournalFault::Error), &moment);
            let runtime = Runtime::start(world).await.expect("the next runtime starts");
            runtime.revive_all().await.expect("the store is read");
            let again = seen.outcomes(runtime, &runs).await;
            assert_eq!(again, None, "nothing is wrong with the next runtime");
        }
        seen
    }
}

/// Where the fault is.
struct Site<'a> {
    runtime: &'a Runtime,
    victim: Accepted,
    moment: &'a Moment,
    store: &'a FaultyJournal,
    /// The victim's after the fault.
    records: Vec<&'static str>,
}

impl Site<'_> {
    /// Brings the fault about, and says how long it took to the next progress.
    async fn fault(&mut self, deed: Deed, first_accepted: Duration) -> Duration {
        match deed {
            Deed::Commit(JournalFault::Slow(_)) => first_accepted,
            Deed::Commit(_) => {
                self.runtime.terminated().await;
                self.store.met().expect("the fault was met").elapsed()
            }
            Deed::Strike(who, how) => {
                self.until(2, Kind::CallEnded).await;
                self.moment.strike();
                strike(self.runtime, self.part(who), how).await;
                self.answered(who).await
            }
            Deed::StrikeThrice(how) => {
                // It stands still in its third iteration; each revival starts the call again.
                let mut progress = None;
                for asked in 3..6 {
                    self.until(asked, Kind::ModelStarted).await;
                    self.moment.strike();
                    strike(self.runtime, Part::Session(self.victim.session), how).await;
                    if progress.is_none() {
                        progress = Some(self.recorded().await);
                    }
                }
                progress.expect("it was struck at least once")
            }
            Deed::Call(Misdeed::ToolIgnoresStop) => {
                self.until(3, Kind::CallStarted).await;
                while self.moment.struck().is_none() {
                    tokio::task::yield_now().await;
                }
                let began = Instant::now();
                self.runtime.stop(self.victim.run, StopReason::Command).await.expect("it is stopped");
                self.recorded().await;
                began.elapsed()
            }
            Deed::Call(_) => self.recorded().await,
        }
    }

    fn part(&self, who: Who) -> Part {
        match who {
            Who::Root => Part::Root,
            Who::Persistence => Part::Persistence,
            Who::ProviderSupervisor => Part::ProviderSupervisor,
            Who::Provider => Part::Provider,
            Who::ToolExecutor => Part::ToolExecutor,
            Who::SessionSupervisor => Part::SessionSupervisor,
            Who::Victim => Part::Session(self.victim.session),
        }
    }

    /// Waits until whoever was struck is back.
    async fn answered(&mut self, who: Who) -> Duration {
        match who {
            Who::Root | Who::Persistence => return self.terminated().await,
            Who::SessionSupervisor | Who::Victim => return self.recorded().await,
            // A provider's mailbox dies with it: it is asked until the next one answers.
            Who::ProviderSupervisor | Who::Provider => while self.runtime.providers().await.is_empty() {},
            Who::ToolExecutor => while self.runtime.tool_status().await.is_none() {},
        }
        self.since()
    }

    fn since(&self) -> Duration {
        self.moment.struck().expect("the fault was brought about").at.elapsed()
    }

    async fn terminated(&self) -> Duration {
        let said = self.runtime.terminated().await;
        assert_ne!(said, Terminated::Suspended);
        self.since()
    }

    /// Waits until the victim has so many records of a kind.
    async fn until(&self, count: usize, kind: Kind) {
        let mut watch = self.runtime.watch(self.victim.session, 1);
        let mut seen = 0;
        while seen < count {
            if let EventBody::Recorded { record, .. } = watch.next().await.expect("the store is read").body {
                seen += usize::from(record.body.kind() == kind);
            }
        }
    }

    /// Waits for the victim's records after the fault, and says when the first one came.
    async fn recorded(&mut self) -> Duration {
        let mut watch = self.runtime.watch(self.victim.session, 1);
        let mut first = None;
        while self.records.len() < RECORDS {
            let event = watch.next().await.expect("the store is read");
            let (seq, EventBody::Recorded { record }) = (event.seq, event.body) else { continue };
            let Some(struck) = self.moment.struck().filter(|struck| seq > struck.last) else { continue };
            first.get_or_insert_with(|| struck.at.elapsed());
            self.records.push(record.body.kind().name());
            if matches!(record.body, Body::RunEnded(_)) {
                break;
            }
        }
        first.expect("there are records after the fault")
    }
}

impl Seen {
    /// Waits for the ends of all runs; or for the runtime's.
    async fn outcomes(&mut self, runtime: Runtime, runs: &[RunId]) -> Option<Terminated> {
        let mut outcomes = Vec::new();
        for run in runs {
            match runtime.wait(*run, None).await {
                Ok(result) => outcomes.push(result),
                Err(RunError::Terminated(reason)) => return Some(reason),
                Err(error) => panic!("{error}"),
            }
        }
        let tree = runtime.tree().await.expect("the runtime is alive");
        let parts = tree.parts.into_iter().map(|part| (part.name, part.restarts));
        let sessions = tree.sessions.iter().map(|session| ("Session".to_owned(), session.deaths));
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

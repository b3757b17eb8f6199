//! Those who use a runtime while it lives: they hand in tasks, wait, watch, and answer what they are asked.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::task::JoinSet;

use super::{
    book::session_key,
    journal::Process,
    life::never,
    outside::Outside,
    plan::{Event, Plan, RunPlan, What},
};
use crate::{
    Accepted, NotAccepted, RunError, RunRequest, Runtime, SessionChoice,
    model::{Doubt, EventBody, RunId, SessionId, Verdict},
    policy::delegation::DELEGATE_TASK,
    testkit::MemoryJournal,
};

/// Before somebody tries again.
const AGAIN: Duration = Duration::from_secs(1);
/// So often is it looked whether all inboxes are empty; longer than any session takes to be opened.
const HEARS: u32 = 300;

/// Who uses the runtime.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) plan: Arc<Plan>,
    pub(super) outside: Arc<Outside>,
    pub(super) process: Arc<Process>,
    pub(super) runtime: Arc<Runtime>,
    pub(super) store: MemoryJournal,
}

impl Clients {
    /// Does what is still to be done. Whether all is done; else the runtime is to be suspended.
    pub(super) async fn drive(&self, clients: &mut JoinSet<()>, tasks: &mut JoinSet<()>) -> bool {
        self.at_rest().await;
        if let Err(error) = self.runtime.revive_all().await {
            self.unless_terminated("revive_all", &error);
        }
        self.say_again(clients);
        for run in self.plan.runs.clone() {
            let this = self.clone();
            tasks.spawn(async move { this.see_through(&run).await });
        }
        clients.spawn(self.clone().answer_questions());
        if self.plan.house.is_watched {
            for session in self.sessions() {
                clients.spawn(self.clone().watch(session));
            }
        }
        tokio::select! {
            biased;
            () = self.events(clients) => false,
            () = self.all_done(tasks) => true,
        }
    }

    async fn all_done(&self, tasks: &mut JoinSet<()>) {
        while tasks.join_next().await.is_some() {}
        // Runs that nobody was told of, and messages that have become runs.
        loop {
            let mut open = self.outside.lock().book.open();
            // Of a run that was said to have ended and has not, nothing more is to be heard: the judge finds it.
            open.retain(|run| !self.outside.lock().book.results.contains_key(run));
            let settled = self.outside.lock().settled;
            if open.is_empty() && settled <= self.outside.now() {
                return self.all_heard().await;
            }
            if open.is_empty() {
                tokio::time::sleep(self.at(settled)).await;
            }
            for run in open {
                self.wait(run).await;
            }
        }
    }

    /// Nobody waits for what lies in inboxes, and yet it is to be heard.
    async fn all_heard(&self) {
        for _ in 0..HEARS {
            if self.store.inboxes().is_empty() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn at(&self, ms: u64) -> Duration {
        Duration::from_millis(ms.saturating_sub(self.outside.now()))
    }

    /// Hands a run in, if it is not known to be accepted, and waits for its end.
    async fn see_through(&self, run: &RunPlan) {
        let known = self.outside.lock().book.accepted.get(&run.n).copied();
        let accepted = match known {
            Some(accepted) => accepted,
            None => match self.hand_in(run).await {
                Some(accepted) => accepted,
                None => return,
            },
        };
        if self.outside.lock().book.results.contains_key(&accepted.run) {
            return;
        }
        loop {
            self.wait(accepted.run).await;
            if !self.go_on_with_more(run, accepted.run).await {
                return;
            }
        }
    }

    async fn wait(&self, run: RunId) {
        loop {
            match self.runtime.wait(run, None).await {
                Ok(result) => {
                    let mut inner = self.outside.lock();
                    // It may have been let go on meanwhile.
                    if !inner.book.goes_on(run) {
                        return drop(inner.book.results.insert(run, result));
                    }
                }
                Err(RunError::Read(_)) => tokio::time::sleep(AGAIN).await,
                Err(error) => {
                    self.unless_terminated("wait", &error);
                    never().await;
                }
            }
        }
    }

    async fn hand_in(&self, run: &RunPlan) -> Option<Accepted> {
        tokio::time::sleep(self.at(run.at_ms)).await;
        loop {
            let first = self.outside.lock().book.handed_in.insert(run.n);
            if !first && !run.keyed {
                return None;
            }
            match self.submit(run).await {
                Ok(accepted) => return Some(accepted),
                // Nothing was accepted: whoever has no key may come again.
                Err(RunError::NotAccepted(NotAccepted::Overloaded { .. } | NotAccepted::KeepsDying(_)))
                    if run.keyed =>
                {
                    tokio::time::sleep(AGAIN).await;
                }
                // What the key stands for could not be read.
                Err(RunError::Read(_)) if run.keyed => tokio::time::sleep(AGAIN).await,
                Err(RunError::NotAccepted(NotAccepted::KeepsDying(_))) => return None,
                Err(error) => {
                    self.unless_terminated("submit", &error);
                    never().await;
                }
            }
        }
    }

    pub(super) async fn submit(&self, run: &RunPlan) -> Result<Accepted, RunError> {
        let mut spec = self.runtime.defaults().spec.clone();
        spec.limits = run.limits;
        spec.delegation = run.delegation;
        if run.delegation.is_some() {
            spec.tools.push(DELEGATE_TASK.into());
        }
        spec.in_doubt = Doubt { then: run.in_doubt, patience_ms: run.patience_ms };
        let request = RunRequest {
            session: SessionChoice::Key(session_key(run.session)),
            spec: Some(spec),
            idempotency_key: run.keyed.then(|| format!("key-{}", run.n).into()),
            ..RunRequest::new(format!("run-{}", run.n))
        };
        let accepted = self.runtime.submit(request).await?;
        let mut inner = self.outside.lock();
        let known = *inner.book.accepted.entry(run.n).or_insert(accepted);
        if run.keyed && known.run != accepted.run {
            let what = format!("run {} is {} and {}", run.n, known.run, accepted.run);
            inner.book.accuse("a key stands for one run", what);
        }
        Ok(accepted)
    }

    /// What has not happened yet, in the order of times.
    pub(super) fn still_to_come(&self) -> Vec<(u64, usize, Event)> {
        let mut events: Vec<(u64, usize, Event)> = Vec::new();
        for fault in &self.plan.faults {
            if let What::At(at, event) = fault.what
                && !self.outside.lock().book.fired.contains(&fault.n)
            {
                events.push((at, fault.n, event));
            }
        }
        events.sort_by_key(|(at, n, _)| (*at, *n));
        events
    }

    /// Lets happen what happens at its time. Ends when the runtime is to be suspended.
    async fn events(&self, clients: &mut JoinSet<()>) {
        for (at, n, event) in self.still_to_come() {
            tokio::time::sleep(self.at(at)).await;
            if !event.decides() {
                self.outside.lock().book.fired.insert(n);
            }
            match event {
                Event::Crash(pause) => {
                    self.outside.goes_wrong(event.name());
                    self.process.die(pause);
                    never().await;
                }
                Event::Suspend(pause) => {
                    self.outside.goes_wrong(event.name());
                    self.process.follow_with(pause);
                    return;
                }
                Event::Jump(by) => {
                    self.outside.goes_wrong(event.name());
                    self.outside.lock().jumped += by;
                }
                Event::Unreadable(reads) => self.process.unreadable.store(reads, Ordering::SeqCst),
                Event::Strike(..)
                | Event::Stop(_)
                | Event::StopAtRest(_)
                | Event::StopLate(_)
                | Event::Steer(_)
                | Event::Raise(..)
                | Event::RaiseAtRest(..)
                | Event::StrikeTelling(_)
                | Event::StopSubagent(_)
                | Event::Again(_)
                | Event::Decide(_)
                | Event::DecideAtRest(_) => drop(clients.spawn(self.clone().do_it_meanwhile(n, event))),
            }
        }
        never().await;
    }

    /// Answers what a person is asked, sooner or later, or never.
    async fn answer_questions(self) {
        let mut deciding = FuturesUnordered::new();
        let mut known = Vec::new();
        loop {
            let changed = Arc::clone(&self.outside.lock().book.changed);
            let questions = self.outside.lock().book.questions();
            for call in questions.into_iter().filter(|call| !known.contains(call)).collect::<Vec<_>>() {
                known.push(call);
                let chance = call.iteration + call.n + u32::try_from(self.plan.seed % 7).unwrap_or(0);
                let (verdict, after) = match chance % 4 {
                    0 => (Verdict::Allow, 50),
                    1 => (Verdict::Deny, 2_000),
                    2 => (Verdict::Allow, 600_000),
                    _ => continue,
                };
                let this = &self;
                deciding.push(async move {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    this.decide(call, verdict).await;
                });
            }
            tokio::select! {
                biased;
                () = changed.notified() => {}
                Some(()) = deciding.next() => {}
            }
        }
    }

    fn sessions(&self) -> Vec<SessionId> {
        self.outside.lock().book.journals.keys().copied().collect()
    }

    /// Watches a session from the beginning.
    async fn watch(self, session: SessionId) {
        let mut watch = self.runtime.watch(session, 1);
        while let Ok(event) = watch.next().await {
            if let EventBody::Recorded { record } = event.body {
                self.outside.lock().book.told(session, event.seq, &record);
            }
        }
    }

    /// An error that only the end of the runtime explains.
    pub(super) fn unless_terminated(&self, what: &str, error: &RunError) {
        if !matches!(error, RunError::Terminated(_) | RunError::Read(_)) {
            self.outside.accuse("callers are told what is so", format!("{what}: {error}"));
        }
    }
}

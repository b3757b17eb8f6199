//! The clients of a runtime during one life: they submit runs, wait for them, watch sessions, and answer approvals.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::task::JoinSet;

use super::{
    external_world::ExternalWorld,
    journal::ProcessState,
    life::never,
    observations::session_key,
    plan::{FaultTrigger, PlannedEvent, RunPlan, SimulationPlan},
    verification::expectations,
};
use crate::MemoryJournal;
use hermod_actors::{
    AcceptedRun, DELEGATE_TASK, RunError, RunRequest, Runtime, SessionChoice, SubmitError,
    model::{ApprovalDecision, EventBody, InDoubtPolicy, RunId, SessionId},
};

/// Pause before a retry.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of polls for empty inboxes; together longer than opening any session takes.
const MAX_INBOX_POLLS: u32 = 300;

/// Maximum number of polls for messages that are not confirmed.
const MAX_MESSAGE_POLLS: u32 = 300;

/// All clients of one runtime.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) plan: Arc<SimulationPlan>,
    pub(super) outside: Arc<ExternalWorld>,
    pub(super) process: Arc<ProcessState>,
    pub(super) runtime: Arc<Runtime>,
    pub(super) store: MemoryJournal,
}

impl Clients {
    /// Carries out the rest of the plan. Returns true if all is done, false if the runtime is to be suspended.
    pub(super) async fn drive(&self, clients: &mut JoinSet<()>, tasks: &mut JoinSet<()>) -> bool {
        self.run_overdue_events().await;
        if let Err(error) = self.runtime.revive_all().await {
            self.report_unless_terminated("revive_all", &error);
        }
        self.steer_again(clients);
        for run in self.plan.runs.clone() {
            let this = self.clone();
            tasks.spawn(async move { this.run_to_end(&run).await });
        }
        clients.spawn(self.clone().answer_approvals());
        if self.plan.process.is_watched {
            for session in self.sessions() {
                clients.spawn(self.clone().watch(session));
            }
        }
        tokio::select! {
            biased;
            () = self.run_events(clients) => false,
            () = self.wait_for_all(tasks) => true,
        }
    }

    async fn wait_for_all(&self, tasks: &mut JoinSet<()>) {
        while tasks.join_next().await.is_some() {}
        let mut polls = 0;
        // Still open may be runs whose acceptance reached no client, and runs that messages have become.
        loop {
            let mut open = self.outside.lock().observations.open();
            // A run that has a result but is still open is a violation: the invariants find it. Nothing more follows.
            open.retain(|run| !self.outside.lock().observations.results.contains_key(run));
            let settled = self.outside.lock().quiet_at;
            if open.is_empty() && settled <= self.outside.now() {
                // A message that is on its way may begin a run.
                if polls < MAX_MESSAGE_POLLS && self.outside.lock().observations.has_unconfirmed_messages() {
                    polls += 1;
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
                return self.wait_for_empty_inboxes().await;
            }
            if open.is_empty() {
                tokio::time::sleep(self.time_until(settled)).await;
            }
            for run in open {
                self.wait(run).await;
            }
        }
    }

    /// No client waits for inbox messages, but sessions must consume them before the end.
    async fn wait_for_empty_inboxes(&self) {
        for _ in 0..MAX_INBOX_POLLS {
            if self.store.inboxes().is_empty() {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn time_until(&self, ms: u64) -> Duration {
        Duration::from_millis(ms.saturating_sub(self.outside.now()))
    }

    /// Submits a run, unless it is known to be accepted, and waits for its end.
    async fn run_to_end(&self, run: &RunPlan) {
        let known = self.outside.lock().observations.accepted.get(&run.n).copied();
        let accepted = match known {
            Some(accepted) => accepted,
            None => match self.submit_until_accepted(run).await {
                Some(accepted) => accepted,
                None => return,
            },
        };
        if self.outside.lock().observations.results.contains_key(&accepted.run) {
            return;
        }
        loop {
            self.wait(accepted.run).await;
            if !self.raise_exhausted(run, accepted.run).await {
                return;
            }
        }
    }

    async fn wait(&self, run: RunId) {
        loop {
            match self.runtime.wait(run, None).await {
                Ok(result) => {
                    let mut inner = self.outside.lock();
                    // The run may have been reopened meanwhile.
                    if !inner.observations.is_reopened(run) {
                        return drop(inner.observations.results.insert(run, result));
                    }
                }
                Err(RunError::Read(_)) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(error) => {
                    self.report_unless_terminated("wait", &error);
                    never().await;
                }
            }
        }
    }

    async fn submit_until_accepted(&self, run: &RunPlan) -> Option<AcceptedRun> {
        tokio::time::sleep(self.time_until(run.at_ms)).await;
        loop {
            let first = self.outside.lock().observations.submitted.insert(run.n);
            if !first && !run.is_keyed {
                return None;
            }
            match self.submit(run).await {
                Ok(accepted) => return Some(accepted),
                // Nothing was accepted: a run with a key is submitted again.
                Err(RunError::NotAccepted(SubmitError::Overloaded { .. } | SubmitError::CrashLooping(_)))
                    if run.is_keyed =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                // The run of the key could not be read.
                Err(RunError::Read(_)) if run.is_keyed => tokio::time::sleep(POLL_INTERVAL).await,
                Err(RunError::NotAccepted(SubmitError::CrashLooping(_))) => return None,
                Err(error) => {
                    self.report_unless_terminated("submit", &error);
                    never().await;
                }
            }
        }
    }

    pub(super) async fn submit(&self, run: &RunPlan) -> Result<AcceptedRun, RunError> {
        let mut spec = self.runtime.defaults().spec.clone();
        spec.limits = run.limits;
        spec.delegation = run.delegation;
        spec.expects = expectations(self.plan.seed(), run.n);
        if run.delegation.is_some() {
            spec.tools.push(DELEGATE_TASK.into());
        }
        spec.in_doubt = InDoubtPolicy { action: run.in_doubt, approval_timeout_ms: run.approval_timeout_ms };
        let request = RunRequest {
            session: SessionChoice::Key(session_key(run.session)),
            spec: Some(spec),
            idempotency_key: run.is_keyed.then(|| format!("key-{}", run.n).into()),
            images: self.plan.images(run.n),
            ..RunRequest::new(format!("run-{}", run.n))
        };
        let accepted = self.runtime.submit(request).await?;
        let mut inner = self.outside.lock();
        let known = *inner.observations.accepted.entry(run.n).or_insert(accepted);
        if run.is_keyed && known.run != accepted.run {
            let what = format!("run {} is {} and {}", run.n, known.run, accepted.run);
            inner.observations.report_violation("a key stands for one run", what);
        }
        Ok(accepted)
    }

    /// The timed events that have not happened yet, ordered by time.
    pub(super) fn remaining_events(&self) -> Vec<(u64, usize, PlannedEvent)> {
        let mut events: Vec<(u64, usize, PlannedEvent)> = Vec::new();
        for fault in &self.plan.faults {
            if let FaultTrigger::At(at, event) = fault.trigger
                && !self.outside.lock().observations.injected.contains(&fault.n)
            {
                events.push((at, fault.n, event));
            }
        }
        events.sort_by_key(|(at, n, _)| (*at, *n));
        events
    }

    /// Runs each timed event when it is due. Returns when the runtime is to be suspended.
    async fn run_events(&self, clients: &mut JoinSet<()>) {
        for (at, n, event) in self.remaining_events() {
            tokio::time::sleep(self.time_until(at)).await;
            if !event.is_decision() {
                self.outside.lock().observations.injected.insert(n);
            }
            match event {
                PlannedEvent::Crash(pause) => {
                    self.outside.record_fault(event.name());
                    self.process.kill(pause);
                    never().await;
                }
                PlannedEvent::Suspend(pause) => {
                    self.outside.record_fault(event.name());
                    self.process.set_downtime(pause);
                    return;
                }
                PlannedEvent::ClockJump(by) => {
                    self.outside.record_fault(event.name());
                    self.outside.lock().clock_jump_ms += by;
                }
                PlannedEvent::Unreadable(reads) => self.process.reads_to_fail.store(reads, Ordering::SeqCst),
                PlannedEvent::ActorFault(..)
                | PlannedEvent::Stop(_)
                | PlannedEvent::StopWithoutResume(_)
                | PlannedEvent::StopLate(_)
                | PlannedEvent::Steer(_)
                | PlannedEvent::Raise(..)
                | PlannedEvent::RaiseWithoutResume(..)
                | PlannedEvent::FaultBeforeNotice(_)
                | PlannedEvent::StopSubagent(_)
                | PlannedEvent::Resubmit(_)
                | PlannedEvent::Decide(_)
                | PlannedEvent::DecideWithoutResume(_) => {
                    drop(clients.spawn(self.clone().run_event_and_revive(n, event)));
                }
            }
        }
        never().await;
    }

    /// Answers pending approvals in place of a person: soon, late, or never.
    async fn answer_approvals(self) {
        let mut deciding = FuturesUnordered::new();
        let mut known = Vec::new();
        loop {
            let changed = Arc::clone(&self.outside.lock().observations.changed);
            let questions = self.outside.lock().observations.pending_approvals();
            for call in questions.into_iter().filter(|call| !known.contains(call)).collect::<Vec<_>>() {
                known.push(call);
                let number = call.iteration + call.n + u32::try_from(self.plan.seed % 7).unwrap_or(0);
                let (verdict, after) = match number % 4 {
                    0 => (ApprovalDecision::Allow, 50),
                    1 => (ApprovalDecision::Deny, 2_000),
                    2 => (ApprovalDecision::Allow, 600_000),
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
        self.outside.lock().observations.journals.keys().copied().collect()
    }

    /// Watches a session from its first record.
    async fn watch(self, session: SessionId) {
        let mut watch = self.runtime.watch(session, 1);
        while let Ok(event) = watch.next().await {
            if let EventBody::Recorded { record } = event.body {
                self.outside.lock().observations.on_acknowledged(session, event.seq, &record);
            }
        }
    }

    /// Reports a violation, unless the end of the runtime or a failed read explains the error.
    pub(super) fn report_unless_terminated(&self, what: &str, error: &RunError) {
        if !matches!(error, RunError::Terminated(_) | RunError::Read(_)) {
            self.outside.report_violation("callers are told what is so", format!("{what}: {error}"));
        }
    }
}

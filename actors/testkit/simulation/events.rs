//! The timed events of a plan: stops, steering, decisions and raised limits for a runtime, and faults of its actors.

use std::{sync::atomic::Ordering, time::Duration};

use futures::future::join;
use tokio::task::JoinSet;

use super::{
    clients::Clients,
    external_world::ExternalState,
    messages,
    plan::{PlannedEvent, PlannedTarget, RunPlan},
};
use crate::{ActorFault, ActorKind, inject_if_alive};
use hermod_actors::{
    AcceptedRun, RaiseError, RunError, RunRequest, SessionChoice, SubmitError,
    model::{
        ApprovalDecision, ApprovalScope, CallId, Hash, Outcome, PersonAnswer, Queueing, RunId, SessionId,
        StopReason,
    },
};

/// Milliseconds that a slow commit takes: longer than a model needs for an answer.
const SLOW_COMMIT_MS: u64 = 2_000;
/// Pause between two polls for model calls, approvals or notices.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Number of polls after which a wait is given up.
const MAX_POLLS: u32 = 400;
/// Added to a message's number for each repeat, so that it differs from the number of every fault.
const REPEAT_NUMBER_STEP: usize = 100;

impl Clients {
    /// Runs the `…WithoutResume` events that became due while no process lived, before any session goes on.
    /// Decisions stay planned while no approval is pending.
    pub(super) async fn run_overdue_events(&self) {
        for (at, n, event) in self.remaining_events() {
            let rests = matches!(
                event,
                PlannedEvent::StopWithoutResume(_)
                    | PlannedEvent::DecideWithoutResume(_)
                    | PlannedEvent::RaiseWithoutResume(..)
            );
            let is_idle =
                event.is_decision() && self.outside.lock().observations.pending_approvals().is_empty();
            if at <= self.outside.now() && rests && !is_idle {
                self.outside.lock().observations.injected.insert(n);
                self.clone().run_event(n, event).await;
            }
        }
    }

    /// Runs an event while sessions go on. After `RaiseWithoutResume` it also revives the session: nothing else does if
    /// the session is not live. Whether the run goes on may be known only later.
    pub(super) async fn run_event_and_revive(self, n: usize, event: PlannedEvent) {
        self.clone().run_event(n, event).await;
        let PlannedEvent::RaiseWithoutResume(run, _) = event else { return };
        let Some(AcceptedRun { session, .. }) = self.outside.lock().run(run) else { return };
        if let Err(error) = self.runtime.revive(session) {
            self.report_unless_terminated("revive", &error);
        }
    }

    async fn run_event(self, n: usize, event: PlannedEvent) {
        let name = event.name();
        match event {
            PlannedEvent::ActorFault(target, fault) => self.inject(target, fault).await,
            PlannedEvent::Stop(run) => {
                let Some(run) = self.find_run(run, name) else { return };
                self.stop(run.run).await;
            }
            PlannedEvent::StopWithoutResume(run) => {
                let Some(run) = self.find_run(run, name) else { return };
                let stopped = self.runtime.stop_without_resume(run.run, StopReason::Command).await;
                self.record_stop(run.run, stopped);
            }
            PlannedEvent::StopLate(run) => self.stop_late(n, run).await,
            PlannedEvent::Steer(run) => self.steer(n, run).await,
            PlannedEvent::Resubmit(run) => {
                let Some(run) = self.plan.run(run).filter(|run| run.is_keyed) else { return };
                self.outside.record_fault(name);
                self.outside.lock().observations.submitted.insert(run.n);
                if let Err(error) = self.submit(run).await {
                    self.report_unless_terminated("submit", &error);
                }
            }
            PlannedEvent::Decide(verdict) => {
                for call in self.wait_for_approvals(n, name).await {
                    self.decide(call, verdict).await;
                }
            }
            PlannedEvent::DecideWithoutResume(verdict) => {
                for call in self.wait_for_approvals(n, name).await {
                    let decided = self.runtime.decide_without_resume(call, answer_for(call, verdict)).await;
                    self.record_decision((call, verdict), decided.map(drop));
                }
            }
            PlannedEvent::Raise(run, by) => {
                let Some(run) = self.find_run(run, name) else { return };
                let raised = self.runtime.raise(run.run, by).await;
                self.record_raise(run.run, raised.map(drop));
            }
            PlannedEvent::RaiseWithoutResume(run, by) => {
                let Some(run) = self.find_run(run, name) else { return };
                let raised = self.runtime.raise_without_resume(run.run, by).await;
                self.record_raise(run.run, raised.map(drop));
            }
            PlannedEvent::FaultBeforeNotice(fault) => self.inject_before_notice(fault, name).await,
            PlannedEvent::StopSubagent(which) => {
                let Some((_, run)) = self.outside.lock().observations.subagent(which) else { return };
                self.outside.record_fault(name);
                self.stop(run).await;
            }
            PlannedEvent::Crash(_)
            | PlannedEvent::Suspend(_)
            | PlannedEvent::ClockJump(_)
            | PlannedEvent::Unreadable(_) => {}
        }
    }

    /// The accepted run that an event is for; notes the event's name as a fault if the run is known.
    fn find_run(&self, run: usize, name: &'static str) -> Option<AcceptedRun> {
        let mut inner = self.outside.lock();
        let known = inner.run(run)?;
        inner.observations.fault_names.insert(name);
        Some(known)
    }

    /// Waits for pending approvals and returns them. An event that finds none stays planned for the next life.
    async fn wait_for_approvals(&self, n: usize, name: &'static str) -> Vec<CallId> {
        for _ in 0..MAX_POLLS {
            {
                let mut inner = self.outside.lock();
                let questions = inner.observations.pending_approvals();
                if !questions.is_empty() {
                    inner.observations.injected.insert(n);
                    inner.observations.fault_names.insert(name);
                    return questions;
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Vec::new()
    }

    async fn stop(&self, run: RunId) {
        self.record_stop(run, self.runtime.stop(run, StopReason::Command).await);
    }

    fn record_stop(&self, run: RunId, stopped: Result<(), RunError>) {
        match stopped {
            Ok(()) => drop(self.outside.lock().observations.stopped.insert(run)),
            Err(error) => self.report_unless_terminated("stop", &error),
        }
    }

    /// Raises the limits of a run that has used them up, as often as planned. Returns whether the run goes on.
    pub(super) async fn raise_exhausted(&self, plan: &RunPlan, run: RunId) -> bool {
        let Some((times, by)) = plan.raises else { return false };
        let is_exhausted = {
            let inner = self.outside.lock();
            let result = inner.observations.results.get(&run);
            result.is_some_and(|result| result.ended.outcome == Outcome::BudgetExhausted)
        };
        let nth = if is_exhausted { self.outside.count(format!("more {}", plan.n)) } else { usize::MAX };
        if nth >= usize::try_from(times).unwrap_or(usize::MAX) {
            return false;
        }
        let raised = self.runtime.raise(run, by).await.map(drop);
        let is_raised = raised.is_ok();
        self.record_raise(run, raised);
        is_raised
    }

    fn record_raise(&self, run: RunId, raised: Result<(), RunError>) {
        match raised {
            Ok(()) => self.outside.lock().observations.raised.push(run),
            // The raise may still become durable: clients that wait for the run have to look again.
            Err(RunError::NotRaised(_, RaiseError::Unknown)) => self.outside.lock().extend_quiet_time(),
            Err(RunError::NotRaised(..)) => {}
            Err(error) => self.report_unless_terminated("raise", &error),
        }
    }

    /// Waits until a model call of the run is under way. Then the stop and the answer both wait behind a slow commit.
    async fn stop_late(&self, n: usize, run: usize) {
        let Some(AcceptedRun { run: id, .. }) = self.outside.lock().run(run) else { return };
        let mut looks = 0..MAX_POLLS;
        loop {
            {
                let inner = self.outside.lock();
                if !inner.observations.open().contains(&id) || looks.next().is_none() {
                    return;
                }
                if inner.model_calls.iter().any(|call| call.call.run == id && call.ended.is_none()) {
                    break;
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.outside.record_fault(PlannedEvent::StopLate(run).name());
        self.process.delay_ms.store(SLOW_COMMIT_MS, Ordering::SeqCst);
        let stop = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.stop(id).await;
        };
        join(self.steer(n, run), stop).await;
    }

    /// Waits until a session writes messages to others or spawns subagents, and injects a fault before that is durable.
    async fn inject_before_notice(&self, fault: ActorFault, name: &'static str) {
        self.process.notice_delay_ms.store(SLOW_COMMIT_MS, Ordering::SeqCst);
        for _ in 0..MAX_POLLS {
            let notifier = self.outside.lock().notifying_session.take();
            if let Some(session) = notifier {
                self.outside.record_fault(name);
                return self
                    .inject_into_actor(ActorKind::Session(session), (PlannedTarget::Subagent(0), fault))
                    .await;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Steers a run. A message without a confirmation is sent again in the next life, under another number.
    async fn steer(&self, n: usize, run: usize) {
        let Some(AcceptedRun { run: id, session, .. }) = self.find_run(run, "message") else { return };
        if let Some(queueing) = messages::queueing(self.plan.seed, n) {
            return self.send_messages((n, run), session, queueing).await;
        }
        let number = {
            let mut inner = self.outside.lock();
            let (_, times) = inner.observations.unconfirmed_steers.entry(n).or_insert((run, 0));
            *times += 1;
            let number = n + REPEAT_NUMBER_STEP * (*times - 1);
            if number != n {
                inner.observations.fault_names.insert("message once more");
            }
            number
        };
        match self.runtime.steer(id, format!("steer-{number}.")).await {
            Ok(steered) => self.outside.lock().observations.steered.push((number, steered.run, steered.next)),
            Err(RunError::Ended(_)) => {}
            Err(error) => return self.report_unless_terminated("steer", &error),
        }
        self.outside.lock().observations.unconfirmed_steers.remove(&n);
    }

    /// Sends messages to a session, one after the other. They are sent again in the next life, with the same keys, until
    /// the last one is confirmed.
    async fn send_messages(&self, (n, run): (usize, usize), session: SessionId, queueing: Queueing) {
        {
            let mut inner = self.outside.lock();
            let (_, times) = inner.observations.unconfirmed_steers.entry(n).or_insert((run, 0));
            *times += 1;
            inner.observations.fault_names.insert(messages::mode_name(queueing.mode));
        }
        for number in messages::numbers(self.plan.seed, n) {
            if !self.send_message(number, session, queueing).await {
                return;
            }
        }
        if let Some(queue) = messages::queue_to_set(self.plan.seed, n) {
            match self.runtime.set_queue(session, queue).await {
                Ok(_) => {
                    let mut inner = self.outside.lock();
                    inner.observations.fault_names.insert("queue of a session set");
                    inner.observations.queues_set.push((session, queue));
                }
                Err(error) => return self.report_unless_terminated("set the queue", &error),
            }
        }
        self.outside.lock().observations.unconfirmed_steers.remove(&n);
    }

    /// Sends a message until it is confirmed; false if the runtime has ended.
    async fn send_message(&self, number: usize, session: SessionId, queueing: Queueing) -> bool {
        let request = RunRequest {
            session: SessionChoice::Id(session),
            idempotency_key: Some(format!("message-{number}").into()),
            request_hash: Some(Hash::of(&number.to_le_bytes())),
            queueing: Some(queueing),
            ..RunRequest::new(format!("steer-{number}."))
        };
        loop {
            match self.runtime.submit(request.clone()).await {
                Ok(sent) => {
                    let mut inner = self.outside.lock();
                    let known = *inner.observations.messages.entry(number).or_insert(sent.run);
                    if known != sent.run {
                        let what = format!("message {number} is {known} and {}", sent.run);
                        inner.observations.report_violation("a key stands for one message", what);
                    }
                    return true;
                }
                Err(
                    RunError::NotAccepted(SubmitError::Overloaded { .. } | SubmitError::CrashLooping(_))
                    | RunError::Read(_),
                ) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(error) => {
                    self.report_unless_terminated("message", &error);
                    return false;
                }
            }
        }
    }

    /// Sends the messages again that an earlier life has not confirmed.
    pub(super) fn steer_again(&self, clients: &mut JoinSet<()>) {
        let unheard = self.outside.lock().observations.unconfirmed_steers.clone();
        for (n, (run, _)) in unheard {
            let this = self.clone();
            clients.spawn(async move { this.steer(n, run).await });
        }
    }

    pub(super) async fn decide(&self, call: CallId, verdict: ApprovalDecision) {
        let decided = self.runtime.decide(call, answer_for(call, verdict)).await;
        self.record_decision((call, verdict), decided.map(drop));
    }

    fn record_decision(&self, what: (CallId, ApprovalDecision), decided: Result<(), RunError>) {
        match decided {
            Ok(()) => self.outside.lock().observations.decided.push(what),
            Err(RunError::NoPendingApproval(_)) => {}
            Err(error) => self.report_unless_terminated("decide", &error),
        }
    }

    async fn inject(&self, target: PlannedTarget, fault: ActorFault) {
        let part = match target {
            PlannedTarget::Root => ActorKind::Root,
            PlannedTarget::Persistence => ActorKind::Persistence,
            PlannedTarget::ProviderSupervisor => ActorKind::ProviderSupervisor,
            PlannedTarget::Provider => ActorKind::Provider,
            PlannedTarget::ToolExecutor => ActorKind::ToolExecutor,
            PlannedTarget::Compressor => ActorKind::Compressor,
            PlannedTarget::SessionSupervisor => ActorKind::SessionSupervisor,
            PlannedTarget::Subagent(which) => {
                let Some((session, _)) = self.outside.lock().observations.subagent(which) else { return };
                ActorKind::Session(session)
            }
            PlannedTarget::Session(session) => {
                let Some(session) = self.outside.lock().observations.session(session) else { return };
                ActorKind::Session(session)
            }
        };
        self.process
            .may_end
            .fetch_or(matches!(target, PlannedTarget::Root | PlannedTarget::Persistence), Ordering::SeqCst);
        self.inject_into_actor(part, (target, fault)).await;
    }

    async fn inject_into_actor(&self, part: ActorKind, (target, fault): (PlannedTarget, ActorFault)) {
        // A dead actor takes no fault.
        if inject_if_alive(&self.runtime, part, fault).await {
            let mut inner = self.outside.lock();
            inner.record_forced_end();
            inner
                .observations
                .fault_names
                .extend([target.name(), PlannedEvent::ActorFault(target, fault).name()]);
        }
    }
}

impl ExternalState {
    /// The accepted run with this number in the plan.
    fn run(&self, n: usize) -> Option<AcceptedRun> {
        self.observations.accepted.get(&n).copied()
    }
}

/// The answer of this decision; the scope of every third approval is the run.
fn answer_for(call: CallId, verdict: ApprovalDecision) -> PersonAnswer {
    match verdict {
        ApprovalDecision::Allow if (call.iteration + call.n).is_multiple_of(3) => {
            PersonAnswer::Allow(ApprovalScope::Run)
        }
        ApprovalDecision::Allow | ApprovalDecision::Deny => verdict.into(),
    }
}

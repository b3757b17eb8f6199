//! From waiting inputs to an append: inputs that wait are decided together, with the leases and permits that are free.
//! The append goes to Persistence. `append_result.rs` handles its result.

use std::sync::Arc;

use crate::{
    persistence::append_with,
    port::Append,
    provider::LeaseUnavailable,
    session::{
        SessionInternalMsg, SessionMsg, SubmitError,
        shell::{Grant, InFlightAppend, InputReply, QueuedInput, SessionActorState, StartPhase},
        tasks::TaskSpawner,
    },
    turn::{DecisionBuilder, GrantRequest, Input},
};

impl SessionActorState {
    /// Decides waiting inputs until an append is in flight or none wait.
    pub(super) fn decide(&mut self) {
        // Inputs that lead to no record may have others behind them.
        while self.in_flight.is_none() && self.decide_next() {}
    }

    /// Decides the inputs that may be decided together. Returns false if there is nothing to decide.
    fn decide_next(&mut self) -> bool {
        let now = self.now();
        self.phase.set_present(self.parts.store_limits.get(), self.parts.begin_rules());
        let mut draft = match &self.phase {
            // A new session without inputs leaves no trace.
            StartPhase::Replayed(replayed, _) if replayed.is_new() && self.waiting.is_empty() => {
                return false;
            }
            StartPhase::Replayed(replayed, first) => replayed.start_decision(now, first),
            StartPhase::Awake(_) if self.waiting.is_empty() => return false,
            StartPhase::Awake(turn) => turn.start_decision(now),
            StartPhase::Switching => return false,
        };
        let inputs = self.apply_inputs(&mut draft);
        if self.suspending.is_none() {
            self.grant_available(&mut draft);
        }
        // Actions that would not be due any more are cancelled at once: a cancellation does not need to be durable.
        TaskSpawner::cancel_undue(&mut self.running, &draft.due());
        let append = draft.finish();
        if append.is_empty() {
            self.reply_to(inputs, now.at);
            self.reconcile();
        } else {
            self.append(append, inputs);
        }
        true
    }

    /// Why the session does not take this submission.
    fn conflict(&self, draft: &DecisionBuilder, input: &Input) -> Option<SubmitError> {
        if let Some(agent) = draft.agent_conflict(input) {
            return Some(SubmitError::OtherAgent { session: self.id, agent: agent.clone() });
        }
        draft.has_history_conflict(input).then_some(SubmitError::HasHistory(self.id))
    }

    /// Applies the waiting inputs to the draft and returns those that it took.
    fn apply_inputs(&mut self, draft: &mut DecisionBuilder) -> Vec<QueuedInput> {
        let mut applied = Vec::new();
        for queued in self.take_waiting() {
            match (self.conflict(draft, &queued.input), queued.reply) {
                (Some(conflict), Some(InputReply::Submit(caller))) => caller.send(Err(conflict)),
                (_, mut reply) => {
                    if let (Some(InputReply::Decide(_, was_needed)), Input::Approval { call, answer }) =
                        (&mut reply, &queued.input)
                    {
                        *was_needed = draft.may_answer(*call, answer);
                    }
                    if let (Some(InputReply::Raise(_, result)), Input::Raise { run, by }) =
                        (&mut reply, &queued.input)
                    {
                        *result = draft.can_raise(*run, by);
                    }
                    draft.apply_input(&queued.input);
                    applied.push(QueuedInput { reply, ..queued });
                }
            }
        }
        applied
    }

    /// The inputs to decide together: all that wait, up to a second submission that can be a repeat (an append has one
    /// idempotency key, and is refused as a whole).
    fn take_waiting(&mut self) -> Vec<QueuedInput> {
        let is_unique = |queued: &QueuedInput| queued.input.is_unique_submission();
        let second = self.waiting.iter().enumerate().filter(|(_, queued)| is_unique(queued)).nth(1);
        let count = second.map_or(self.waiting.len(), |(index, _)| index);
        let mut inputs: Vec<QueuedInput> = self.waiting.drain(..count).collect();
        for queued in &mut inputs {
            if let Some(Grant::Place(place)) = queued.grant.take_if(|grant| matches!(grant, Grant::Place(_)))
            {
                self.place = Some(place);
            }
            if let Input::Leased { id, .. } | Input::SummaryLeased { id, .. } | Input::Permitted(id) =
                queued.input
            {
                self.granted.extend(queued.grant.take().map(|grant| (id, grant)));
            }
            TaskSpawner::forget_acquire(&mut self.running, &queued.input);
        }
        inputs
    }

    /// Takes free leases, permits and places that the draft requests: starts are then written together with their cause.
    fn grant_available(&mut self, draft: &mut DecisionBuilder) {
        for request in draft.grant_requests() {
            match request {
                // The Compressor admits an aside before it gets a lease.
                GrantRequest::Lease(id) if id.call.is_aside() => {}
                GrantRequest::Lease(id) => {
                    let Some(candidates) = draft.candidates_of(id.call) else { continue };
                    match self.parts.leases.try_lease(&candidates, (self.parts.clock.at(), None), None) {
                        Ok(lease) => {
                            draft.apply_input(&Input::Leased { id, model: lease.admission.model.clone() });
                            self.granted.insert(id, Grant::Lease(lease));
                        }
                        Err(LeaseUnavailable::NoneAvailable(skipped)) => {
                            draft.apply_input(&Input::NoLease { id, skipped: skipped.into() });
                        }
                        Err(LeaseUnavailable::Queue(_) | LeaseUnavailable::Wait(_)) => {}
                    }
                }
                // A run that follows another one of its session waits behind those of other sessions.
                GrantRequest::Place(run, lane) if self.place.is_none() => {
                    self.place = self.parts.lanes.try_occupy(lane);
                    if self.place.is_some() {
                        draft.apply_input(&Input::MayBegin { run, hooks: None });
                        self.grant_available(draft);
                    }
                }
                GrantRequest::Place(..) => {}
                GrantRequest::Permit(id, class) => {
                    if let Some(permit) = self.parts.executor.try_permit(class) {
                        draft.apply_input(&Input::Permitted(id));
                        self.granted.insert(id, Grant::Permit(permit));
                    }
                }
            }
        }
    }

    fn append(&mut self, append: Append, inputs: Vec<QueuedInput>) {
        let first = append.expected;
        let notified: Vec<_> = append.deliver.iter().map(|(session, _)| *session).collect();
        self.appends += 1;
        let (number, session, me, parts) = (self.appends, self.id, self.me.clone(), Arc::clone(&self.parts));
        self.in_flight = Some(InFlightAppend { number, inputs });
        let write = append_with(append, move |stored| {
            // Watchers receive the records even if the session crashes before it does.
            if let Ok(Ok(records)) = &stored {
                parts.hub.publish_records(session, first, records);
                notified.into_iter().for_each(|session| parts.notify_inbox(session));
            }
            if me.cast(SessionMsg::Inner(SessionInternalMsg::AppendDone(number, stored))).is_err() {
                tracing::debug!("an append was stored after its session had gone");
            }
        });
        if self.parts.persistence.cast(write).is_err() {
            tracing::warn!(session = %self.id, "persistence is gone");
        }
        if matches!(&self.phase, StartPhase::Awake(turn) if turn.is_stopping()) {
            self.expedite();
        }
    }
}

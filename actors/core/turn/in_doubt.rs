//! Decides what becomes of tool calls that were lost, interrupted or never executed. A call is repeated where that is
//! safe; otherwise a policy or a person's approval decides (`approval.rs`).

use crate::{
    model::{
        ApprovalRequested, Attempt, AttemptId, Body, CallEnd, CallId, CallStatus, DecisionSource,
        InDoubtAction, RetryReason, Timestamp,
    },
    mutants::{Mutant, mutant_enabled},
    turn::{
        active_run::ActiveRun,
        decision::DecisionBuilder,
        tool_calls::{ActiveToolCall, ToolCallState},
    },
};

/// Number of lost attempts after which a call is not started again.
const MAX_ATTEMPTS: Attempt = 3;
/// Most characters of the arguments that the text about a call in doubt quotes.
const MAX_ARGUMENT_CHARS: usize = 2_000;

impl DecisionBuilder {
    /// Reacts to a tool call whose task ended without a result. A call that may be repeated gets its next attempt; a
    /// `once` call is in doubt.
    pub(super) fn on_tool_lost(&mut self, id: AttemptId) {
        // A delegating call has no task of its own: its subagents do the work.
        let Some(active) = self.call(id.call).filter(|active| !active.delegates()) else { return };
        let ToolCallState::Started(started, since) = &active.state else { return };
        if started.id() != id {
            return;
        }
        let (since, is_once) = (*since, active.is_once());
        let closing = self.run().and_then(ActiveRun::closing_reason);
        if is_once && !mutant_enabled(Mutant::RepeatInDoubt) {
            self.resolve_in_doubt(id, since);
        } else if let Some(why) = closing {
            let end = CallEnd::error(CallStatus::Stopped, why, None, "nothing to do");
            self.end_call(id, end);
        } else if self.lost_attempts(id.call) + 1 >= MAX_ATTEMPTS {
            let hint = "the tool fails inside; try another way";
            let end = CallEnd::error(CallStatus::Error, "the tool died each time it was started", None, hint);
            self.end_call(id, end);
        } else {
            self.record_loss(id, RetryReason::Lost);
        }
    }

    /// Reacts to a repeatable call that a crash of the process has interrupted: it gets its next attempt. Their number
    /// is not limited, because the crash says nothing about the tool.
    pub(super) fn on_interrupted(&mut self, id: AttemptId) {
        if self.run().is_some_and(|run| run.closing_reason().is_some()) {
            self.on_tool_lost(id);
        } else {
            self.record_loss(id, RetryReason::Interrupted);
        }
    }

    /// Reacts to a call that was recorded as started but never executed: it gets its next attempt, unless the run
    /// starts no more calls.
    pub(super) fn on_tool_never_started(&mut self, id: AttemptId) {
        if !self.is_started(id) || self.call(id.call).is_none_or(ActiveToolCall::delegates) {
            return;
        }
        self.record_loss(id, RetryReason::NeverStarted);
        if let Some(why) = self.run().and_then(ActiveRun::closing_reason) {
            return self.end_call(id.call.attempt(0), CallEnd::not_started(why));
        }
        self.skip_for_messages();
    }

    /// Resolves a call in doubt by the policy of the run's spec; a run that starts no more calls always tells the
    /// model.
    fn resolve_in_doubt(&mut self, id: AttemptId, since: Timestamp) {
        let AttemptId { call, attempt } = id;
        let Some(run) = self.run() else { return };
        let policy = run.spec.in_doubt;
        let action = if run.closing_reason().is_some() { InDoubtAction::Tell } else { policy.action };
        match action {
            InDoubtAction::Retry if self.lost_attempts(call) + 1 < MAX_ATTEMPTS => {
                self.record_loss(id, RetryReason::InDoubt);
            }
            InDoubtAction::Tell | InDoubtAction::Retry => {
                let end = self.in_doubt_end(call, since, None);
                self.end_call(id, end);
            }
            InDoubtAction::Ask => {
                let question = format!("{}. Is it to be made again?", self.format_in_doubt(call, since));
                let expires_at = self.now.at.plus_ms(policy.approval_timeout_ms);
                let (rules, allow_rules) = (Vec::new(), Vec::new());
                let wants_text = false;
                let request =
                    ApprovalRequested { call, attempt, question, rules, allow_rules, wants_text, expires_at };
                self.record(Body::ApprovalRequested(request));
            }
        }
    }

    /// Attempts of a call that were lost for a reason that may lie in the call itself.
    fn lost_attempts(&self, call: CallId) -> Attempt {
        self.call(call).map_or(0, |call| call.lost_attempts)
    }

    /// The result that the model reads for a call in doubt that is not repeated.
    pub(super) fn in_doubt_end(&self, call: CallId, since: Timestamp, by: Option<DecisionSource>) -> CallEnd {
        let remark = match by {
            None => "",
            Some(DecisionSource::Person) => {
                "; the operator was asked and has decided that it is not made again"
            }
            Some(DecisionSource::Expiry) => {
                "; the operator was asked and has not answered, so it is not made again"
            }
        };
        let error = format!("{}{remark}", self.format_in_doubt(call, since));
        CallEnd::error(CallStatus::InDoubt, &error, None, "look at what is there before you repeat anything")
    }

    /// The known facts about a call in doubt, as text.
    fn format_in_doubt(&self, id: CallId, since: Timestamp) -> String {
        format!(
            "{} {} was started at {} and what ran it was interrupted before its end was seen: its effect is unknown; it may \
             have happened in full, in part or not at all, and it may still be going on",
            self.call(id).map_or("a call", |call| &*call.tool),
            self.run()
                .map_or("", |run| run.arguments(id))
                .chars()
                .take(MAX_ARGUMENT_CHARS)
                .collect::<String>(),
            since,
        )
    }
}

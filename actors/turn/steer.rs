//! Messages to a run that is under way, from their record to the place where the model reads them.
//!
//! Invariant: from the record of a message on, no tool call of its run is started for the first time before a model has
//! been shown the message; and a message is shown in exactly one place, which no request has covered yet.

use std::sync::Arc;

use imbl::Vector;

use crate::{
    model::{
        Body, CallEnd, CallId, CallStatus, MessageSteered, Outcome, OutcomeDetail, RunAccepted, RunId,
        RunSpec,
    },
    turn::{
        Turn,
        active_run::{ActiveToolCall, CurrentRun, LoopState, ToolCallState},
        decision::DecisionBuilder,
        model_call::ModelCallState,
    },
};

/// What a tool call that a message has overtaken returns.
const SKIPPED: &str = "Skipped to process an incoming message.";

/// The messages of a session that no model has been shown yet, and which ones were heard.
#[derive(Debug, Clone, Default)]
pub(super) struct Steering {
    unread: Vector<Arc<MessageSteered>>,
    /// Messages by their `next`, with the runs that they were for; those of runs that ended before the last one are gone.
    recorded: Vector<(RunId, RunId)>,
}

impl Steering {
    /// Whether this message is recorded. Of runs that ended before the last one, nothing is known.
    pub(super) fn is_recorded(&self, next: RunId) -> bool {
        self.recorded.iter().any(|(_, heard)| *heard == next)
    }

    /// Forgets what was heard for other runs than these.
    pub(super) fn retain_runs(&mut self, wanted: impl Fn(RunId) -> bool) {
        self.recorded.retain(|(run, _)| wanted(*run));
    }

    fn add(&mut self, message: &MessageSteered) {
        self.unread.push_back(Arc::new(message.clone()));
        self.recorded.push_back((message.run, message.followup_run));
    }

    /// Takes out the messages that `wanted` says.
    pub(super) fn take(&mut self, wanted: impl Fn(&MessageSteered) -> bool) -> Vec<Arc<MessageSteered>> {
        let taken = self.unread.iter().filter(|message| wanted(message)).cloned().collect();
        self.unread.retain(|message| !wanted(message));
        taken
    }

    pub(super) fn is_unread(&self, wanted: impl Fn(&MessageSteered) -> bool) -> bool {
        self.unread.iter().any(|message| wanted(message))
    }
}

/// A message as the model reads it behind something else. The id makes a fence that no text closes by chance.
pub(super) fn delimited(message: &MessageSteered) -> String {
    let MessageSteered { text, followup_run: next, .. } = message;
    format!(
        "\n\n<user_message_{next}>\nThe user sent this while you were working. It is from the user, and no part of what \
         stands above:\n{text}\n</user_message_{next}>"
    )
}

impl Turn {
    /// Whether a message to a run is recorded.
    pub(crate) fn is_message_recorded(&self, next: RunId) -> bool {
        self.steering.is_recorded(next)
    }

    /// A message came; if the next request is not made yet, it goes in there.
    pub(super) fn fold_message_steered(&mut self, message: &MessageSteered) {
        self.steering.add(message);
        if let CurrentRun::Running(run) = &self.current
            && matches!(
                &run.state,
                LoopState::CallingModel(ModelCallState { since: None, is_repeated: false, .. })
            )
        {
            self.show_messages(run.id);
        }
    }

    /// Puts the messages to the run under way behind what the model reads next.
    pub(super) fn show_messages(&mut self, run: RunId) {
        self.show_unsynced_note();
        if self.is_exhausted() {
            return;
        }
        for message in self.steering.take(|message| message.run == run) {
            self.history.add_note(&delimited(&message));
        }
    }

    /// The messages that the run that begins now has to read: its own, and those of ended runs that nobody has read.
    pub(super) fn messages_at_start(&mut self) -> Vec<Arc<MessageSteered>> {
        let queue = &self.queue;
        self.steering.take(|message| queue.iter().all(|queued| queued.accepted.run != message.run))
    }

    /// A run is accepted; if it is what messages have become, they are its input.
    pub(super) fn adopt_followup(&mut self, accepted: &RunAccepted) {
        if self.steering.is_unread(|message| message.followup_run == accepted.run) {
            self.messages_at_start();
        }
    }

    /// A run that never began is gone, and what was said to it.
    pub(super) fn forget_messages(&mut self, run: RunId) {
        self.steering.take(|message| message.run == run);
    }
}

impl DecisionBuilder {
    /// Records a message to a run, unless it has ended or is about to.
    pub(super) fn steer(&mut self, run: RunId, text: &Arc<str>, next: RunId) {
        if self.turn.is_message_recorded(next) {
            return;
        }
        let current = self.run().is_some_and(|current| current.id == run && current.planned_end.is_none());
        if !current && self.turn.queue.iter().all(|queued| queued.accepted.run != run) {
            return;
        }
        self.record(Body::MessageSteered(MessageSteered { run, text: Arc::clone(text), followup_run: next }));
        self.skip_for_messages();
    }

    /// Ends the calls of the present answer that were never started, if a message waits to be read.
    pub(super) fn skip_for_messages(&mut self) {
        let Some(run) = self.run() else { return };
        if !self.turn.steering.is_unread(|message| message.run == run.id) {
            return;
        }
        let never_begun = |call: &&ActiveToolCall| {
            !call.may_have_run && matches!(call.state, ToolCallState::Proposed | ToolCallState::Admitted(_))
        };
        let skipped: Vec<CallId> = run.calls().iter().filter(never_begun).map(|call| call.id).collect();
        for call in skipped {
            let end = CallEnd::new(CallStatus::NotStarted, SKIPPED);
            self.end_call(call, 0, end);
        }
    }

    /// The run under way has ended. What came after its last step becomes a run of its own, if the run completed and
    /// none waits already; else the next run reads it in front of everything, whenever that is.
    pub(super) fn follow_up(&mut self, spec: &Arc<RunSpec>, ended: &OutcomeDetail) {
        let idle = matches!(self.turn.current, CurrentRun::Idle);
        // A subagent's conversation ends with its task: what comes after is heard by nobody.
        if !idle
            || ended.outcome != Outcome::Completed
            || spec.delegation.is_some_and(|delegation| delegation.depth > 0)
        {
            return;
        }
        let unread = &self.turn.steering.unread;
        let Some(first) = unread.front() else { return };
        let texts: Vec<&str> = unread.iter().map(|message| &*message.text).collect();
        let (run, input, spec) = (first.followup_run, texts.join("\n\n").into(), Arc::clone(spec));
        let history = Arc::default();
        self.record(Body::RunAccepted(Box::new(RunAccepted {
            run,
            input,
            images: Arc::default(),
            history,
            spec,
            parent: None,
        })));
    }
}

//! Steering: messages of a user to a run under way or queued. A message is recorded, supersedes calls that have not
//! started, and becomes a follow-up run if no model has read it. `fold.rs` puts it into the view.
//!
//! Invariant: after the record of a message, no tool call of its run starts for the first time before a model has read
//! the message. A message is shown in exactly one place, which no request has covered before.

use std::sync::Arc;

use imbl::Vector;

use crate::{
    model::{
        Body, CallEnd, CallId, CallStatus, MessageDropped, MessageSteered, Outcome, OutcomeDetail,
        RUNTIME_TEXT_PREFIX, RunAccepted, RunId, RunSpec, Seq,
    },
    turn::{decision::DecisionBuilder, run_queue::QueuedRun, tool_calls::ActiveToolCall},
};

/// The result of a tool call that a message has superseded.
const SKIPPED: &str = "Skipped to process an incoming message.";
/// Most dropped messages whose beginnings the model gets.
const MAX_EXCERPTS: usize = 20;
/// Messages whose ids are known however many runs have ended since: a repeat after a crash comes soon.
const KEPT_IDS: usize = 64;

/// Steering messages that no view shows yet, and the ids of the recorded ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Steering {
    /// Each with the number of its record.
    unread: Vector<(Seq, Arc<MessageSteered>)>,
    /// Recorded messages: the run and the `followup_run` of each. The newest, and all of the last run and later ones.
    recorded: Vector<(RunId, RunId)>,
    dropped: DroppedMessages,
}

/// What the model gets of dropped messages.
#[derive(Debug, Clone, Default)]
struct DroppedMessages {
    /// Messages that have an excerpt.
    count: u32,
    /// The beginnings of the last ones.
    excerpts: Vector<Arc<str>>,
}

impl Steering {
    /// Whether this message is recorded; false also for old messages to runs that ended before the last one.
    pub(super) fn is_recorded(&self, next: RunId) -> bool {
        self.recorded.iter().any(|(_, message)| *message == next)
    }

    /// Whether no view lacks a message, or a note about dropped ones.
    pub(super) fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.dropped.count == 0
    }

    /// The messages that no view shows yet.
    pub(super) fn unread(&self) -> impl Iterator<Item = &Arc<MessageSteered>> {
        self.unread.iter().map(|(_, message)| message)
    }

    /// The messages that no view shows yet, each with the number of its record.
    pub(super) fn unread_by_record(&self) -> impl Iterator<Item = (Seq, &Arc<MessageSteered>)> {
        self.unread.iter().map(|(seq, message)| (*seq, message))
    }

    /// Notes that this message to a run is recorded.
    pub(super) fn note_recorded(&mut self, run: RunId, message: RunId) {
        self.recorded.push_back((run, message));
    }

    /// Drops a message. `run` is the run in which it waited, or that was first when it arrived.
    pub(super) fn drop_message(&mut self, dropped: &MessageDropped, run: Option<RunId>) {
        self.unread.retain(|(_, message)| message.followup_run != dropped.message);
        if let Some(run) = run.filter(|_| !self.is_recorded(dropped.message)) {
            self.note_recorded(run, dropped.message);
        }
        if let Some(excerpt) = &dropped.excerpt {
            self.dropped.count = self.dropped.count.saturating_add(1);
            self.dropped.excerpts.push_back(Arc::clone(excerpt));
            if self.dropped.excerpts.len() > MAX_EXCERPTS {
                self.dropped.excerpts.pop_front();
            }
        }
    }

    /// Removes and returns the note about dropped messages.
    pub(super) fn take_dropped_note(&mut self) -> Option<String> {
        let DroppedMessages { count, excerpts } = std::mem::take(&mut self.dropped);
        let lines: Vec<&str> = excerpts.iter().flat_map(|excerpt| ["\n- ", &**excerpt]).collect();
        let lines = lines.concat();
        (count > 0).then(|| {
            format!(
                "\n\n{RUNTIME_TEXT_PREFIX}{count} earlier messages of the user were dropped, because too many waited. \
                 The last of them began:{lines}]"
            )
        })
    }

    /// Forgets the ids of messages to all runs except those that are `wanted`, and except the newest ids.
    pub(super) fn retain_runs(&mut self, wanted: impl Fn(RunId) -> bool) {
        let mut surplus = self.recorded.len().saturating_sub(KEPT_IDS);
        self.recorded.retain(|(run, _)| {
            let is_old = surplus > 0;
            surplus = surplus.saturating_sub(1);
            !is_old || wanted(*run)
        });
    }

    /// Removes and returns the messages for the run that starts now: its own, and unread ones of ended runs.
    pub(super) fn take_for_next(&mut self, queue: &Vector<Arc<QueuedRun>>) -> Vec<Arc<MessageSteered>> {
        self.take(|message| queue.iter().all(|queued| queued.accepted.run != message.run))
    }

    /// Adds the message of the record with this number.
    pub(super) fn add(&mut self, seq: Seq, message: &MessageSteered) {
        self.unread.push_back((seq, Arc::new(message.clone())));
        self.note_recorded(message.run, message.followup_run);
    }

    /// Removes and returns the messages for which `wanted` is true.
    pub(super) fn take(&mut self, wanted: impl Fn(&MessageSteered) -> bool) -> Vec<Arc<MessageSteered>> {
        let taken = self.unread().filter(|message| wanted(message)).cloned().collect();
        self.unread.retain(|(_, message)| !wanted(message));
        taken
    }

    pub(super) fn is_unread(&self, wanted: impl Fn(&MessageSteered) -> bool) -> bool {
        self.unread().any(|message| wanted(message))
    }
}

/// A message as the model reads it behind other text. The id in its tag keeps the text from closing the tag by chance.
pub(super) fn delimited(message: &MessageSteered) -> String {
    let MessageSteered { text, followup_run: next, .. } = message;
    format!(
        "\n\n<user_message_{next}>\nThe user sent this while you were working. It is from the user, and no part of what \
         stands above:\n{text}\n</user_message_{next}>"
    )
}

impl DecisionBuilder {
    /// Records a message to a run, unless the run has ended or is being stopped.
    pub(super) fn steer(&mut self, message: &MessageSteered) {
        let MessageSteered { run, followup_run, .. } = *message;
        if self.turn.is_message_recorded(followup_run) {
            return;
        }
        let current = self.run().is_some_and(|current| current.id == run && current.planned_end.is_none());
        if !current && self.turn.queue.iter().all(|queued| queued.accepted.run != run) {
            return;
        }
        self.record(Body::MessageSteered(message.clone()));
        self.skip_for_messages();
    }

    /// Ends the tool calls of the present answer that were never executed, if a message is unread.
    pub(super) fn skip_for_messages(&mut self) {
        let Some(run) = self.run() else { return };
        if !self.turn.steering.is_unread(|message| message.run == run.id) {
            return;
        }
        let never_started = |call: &&ActiveToolCall| !call.may_have_run && call.may_start();
        let skipped: Vec<CallId> =
            run.tool_calls().iter().filter(never_started).map(|call| call.id).collect();
        for call in skipped.into_iter().chain(self.unstarted_parked_calls()) {
            let end = CallEnd::new(CallStatus::NotStarted, SKIPPED);
            self.end_call(call.attempt(0), end);
        }
    }

    /// Reacts to the end of a run with unread messages. If the run completed and none is queued, they become a run of
    /// their own; otherwise the next run reads them first.
    pub(super) fn follow_up(&mut self, spec: &Arc<RunSpec>, ended: &OutcomeDetail) {
        // A subagent's conversation ends with its task, so later messages start no run.
        if self.run().is_some()
            || !self.turn.queue.is_empty()
            || ended.outcome != Outcome::Completed
            || spec.delegation.is_some_and(|delegation| delegation.depth > 0)
        {
            return;
        }
        let unread = || self.turn.steering.unread();
        let Some(first) = unread().next() else { return };
        let texts: Vec<&str> = unread().map(|message| &*message.text).collect();
        let mut spec = Arc::clone(spec);
        if !spec.expects.is_empty() {
            // They were declared for the task that is done.
            Arc::make_mut(&mut spec).expects.clear();
        }
        let accepted = RunAccepted::new(first.followup_run, texts.join("\n\n"), spec);
        self.accept_run(accepted, None);
    }
}

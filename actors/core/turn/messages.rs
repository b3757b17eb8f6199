//! Decides what becomes of a message to a session: it steers the run under way, joins a queued run, becomes a run of its
//! own, or is dropped because too many wait. `run_queue.rs` has the queue, `steer.rs` what a run under way reads.
//!
//! Invariant: a message has one place at a time. It is read by the run in whose input or view it is, or it is dropped
//! with a record that says why.

use std::sync::Arc;

use crate::{
    model::{
        Body, DropPolicy, DropReason, MessageCollected, MessageDropped, MessageSteered, QueueMode,
        QueueOverrides, Queueing, RunAccepted, RunId, Seq, StopReason, Timestamp,
    },
    turn::{Turn, decision::DecisionBuilder, run_queue::QueuedRun},
};

/// Most characters of a dropped message that the model gets.
const MAX_EXCERPT_CHARS: usize = 160;
/// A run collects messages for at most this many times its quiet time.
const MAX_QUIET_TIMES: u64 = 20;

/// A message that no model has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitingMessage {
    /// The number of its record. Messages are ordered by it: their ids are of the time, and a clock may be set back.
    seq: Seq,
    pub(super) message: RunId,
    /// The run in which it waits.
    run: RunId,
}

impl Turn {
    /// Whether the session has recorded this message or run.
    pub fn is_known(&self, message: RunId) -> bool {
        self.accepted.contains(&message) || self.steering.is_recorded(message)
    }

    /// The messages that wait to be read.
    pub(super) fn waiting_messages(&self) -> impl Iterator<Item = WaitingMessage> {
        let unread = self.steering.unread_by_record();
        let unread =
            unread.map(|(seq, unread)| WaitingMessage { seq, message: unread.followup_run, run: unread.run });
        let of = |queued: &Arc<QueuedRun>| {
            let run = queued.accepted.run;
            let messages = queued.messages().map(|(seq, message)| WaitingMessage { seq, message, run });
            messages.collect::<Vec<_>>()
        };
        unread.chain(self.queue.iter().flat_map(of))
    }
}

impl DecisionBuilder {
    /// Decides what becomes of a message. `accepted` is the run that it becomes unless it joins another one.
    pub(super) fn accept_message(&mut self, accepted: &RunAccepted, queueing: &Queueing) {
        let joins = self.run().is_some() || !self.turn.queue.is_empty();
        match queueing.mode {
            QueueMode::Interrupt if joins => self.interrupt_with(accepted, queueing),
            QueueMode::Steer if joins && accepted.images.is_empty() => {
                self.steer_or_queue(accepted, queueing);
            }
            QueueMode::Collect if joins => self.collect(accepted, queueing),
            QueueMode::Followup | QueueMode::Steer if joins => {
                if self.make_room(accepted, queueing) {
                    self.accept(accepted, queueing);
                }
            }
            // An idle session takes any message: the run that begins reads what was left unread.
            QueueMode::Followup | QueueMode::Steer | QueueMode::Interrupt | QueueMode::Collect => {
                self.accept(accepted, queueing);
            }
        }
    }

    /// Sets how the messages of the session queue. A request that changes nothing is no record.
    pub(super) fn set_queue(&mut self, queue: QueueOverrides) {
        if queue != self.turn.row.queue {
            self.record(Body::QueueChanged(queue));
        }
    }

    /// The message steers the run under way, or the one that has yet to get permission to begin. If it reads no more
    /// messages, the message joins the last queued run of
    /// messages that takes it, or becomes the next run.
    fn steer_or_queue(&mut self, accepted: &RunAccepted, queueing: &Queueing) {
        let reads = |turn: &Turn| !turn.is_stopping() && !turn.is_exhausted();
        let current = self.run().map(|run| run.id).filter(|_| reads(&self.turn));
        if current.is_none()
            && let Some(run) = self.collecting_run(accepted)
        {
            return self.add_to(&run, accepted, queueing);
        }
        if !self.make_room(accepted, queueing) {
            return;
        }
        match current.or_else(|| self.turn.permission_seeker()) {
            None => self.accept(accepted, queueing),
            Some(run) => self.steer(&MessageSteered {
                run,
                text: Arc::clone(&accepted.input),
                followup_run: accepted.run,
                request_hash: accepted.request_hash,
            }),
        }
    }

    /// The message joins the last queued run if that collects messages, or becomes a run that does.
    fn collect(&mut self, accepted: &RunAccepted, queueing: &Queueing) {
        if let Some(run) = self.collecting_run(accepted) {
            return self.add_to(&run, accepted, queueing);
        }
        if self.make_room(accepted, queueing) {
            self.accept(accepted, queueing);
        }
    }

    /// The message becomes a run of its own, which collects further ones in mode `collect`.
    fn accept(&mut self, accepted: &RunAccepted, queueing: &Queueing) {
        let until = (queueing.mode == QueueMode::Collect).then(|| self.now.at.plus_ms(queueing.collect_ms));
        self.accept_run(accepted.clone(), until);
    }

    /// The run that this message may join.
    fn collecting_run(&self, accepted: &RunAccepted) -> Option<Arc<QueuedRun>> {
        let last = self.turn.queue.last().filter(|queued| queued.collects());
        last.filter(|queued| queued.has_space_for(accepted)).cloned()
    }

    fn add_to(&mut self, queued: &QueuedRun, accepted: &RunAccepted, queueing: &Queueing) {
        if !self.make_room(accepted, queueing) {
            return;
        }
        // The dropped message may have been the only one of that run.
        if self.turn.queued(queued.accepted.run).is_none() {
            return self.accept(accepted, queueing);
        }
        self.record(Body::MessageCollected(MessageCollected {
            run: queued.accepted.run,
            message: accepted.run,
            text: Arc::clone(&accepted.input),
            images: Arc::clone(&accepted.images),
            until: collects_until(queued, queueing, self.now.at),
            request_hash: accepted.request_hash,
        }));
    }

    /// Accepts the message as the next run, ends the queued runs of messages, and stops the run under way. In this order:
    /// a task that waits behind a held run must not begin, and be stopped, in between.
    fn interrupt_with(&mut self, accepted: &RunAccepted, queueing: &Queueing) {
        let of_messages = self.turn.queue.iter().filter(|queued| queued.is_of_messages());
        let queued: Vec<RunId> = of_messages.map(|queued| queued.accepted.run).collect();
        let current = self.run().map(|run| run.id);
        self.accept(accepted, queueing);
        for run in queued {
            self.end_queued(run, StopReason::Interrupt);
        }
        if current.is_some() {
            self.stop(current, StopReason::Interrupt);
        }
    }

    /// Drops messages until one more may wait. Returns false if it is the new one that was dropped.
    fn make_room(&mut self, accepted: &RunAccepted, queueing: &Queueing) -> bool {
        let cap = queueing.cap.max(1);
        let reason = DropReason::QueueFull { cap };
        while self.turn.waiting_messages().count() >= cap as usize {
            let oldest = self.turn.waiting_messages().min();
            let (Some(oldest), false) = (oldest, queueing.drop == DropPolicy::New) else {
                let (message, request_hash) = (accepted.run, accepted.request_hash);
                let dropped = MessageDropped { message, run: None, reason, excerpt: None, request_hash };
                self.record(Body::MessageDropped(dropped));
                return false;
            };
            self.drop_message(oldest, reason, queueing.drop == DropPolicy::Summarize);
        }
        true
    }

    fn drop_message(&mut self, oldest: WaitingMessage, reason: DropReason, is_summarized: bool) {
        let WaitingMessage { seq: _, message, run } = oldest;
        let unread = self.turn.steering.unread().find(|unread| unread.followup_run == message);
        let queued = self.turn.queued(run).filter(|_| unread.is_none());
        let (text, request_hash) = match (unread, queued) {
            (Some(unread), _) => (Some(&unread.text), unread.request_hash),
            (None, Some(queued)) => (queued.text_of(message), queued.request_hash_of(message)),
            (None, None) => (None, None),
        };
        let excerpt = text.filter(|_| is_summarized).map(|text| excerpt(text));
        let is_last = queued.is_some_and(|queued| queued.messages().all(|(_, other)| other == message));
        let run = Some(run);
        self.record(Body::MessageDropped(MessageDropped { message, run, reason, excerpt, request_hash }));
        if let Some(run) = run.filter(|_| is_last) {
            self.end_queued(run, StopReason::QueueFull);
        }
    }
}

/// The end of the time in which a run collects messages, after another one at this time.
fn collects_until(queued: &QueuedRun, queueing: &Queueing, at: Timestamp) -> Timestamp {
    let latest = queued.at.plus_ms(queueing.collect_ms.saturating_mul(MAX_QUIET_TIMES));
    at.plus_ms(queueing.collect_ms).min(latest)
}

/// The beginning of a text, on one line.
fn excerpt(text: &str) -> Arc<str> {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MAX_EXCERPT_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line.into()
}

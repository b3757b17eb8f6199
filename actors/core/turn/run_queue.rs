//! The accepted runs of a session that have not begun ([`QueuedRun`]), and how records change them. A run begins when
//! those before it have ended and nothing holds it.

use std::sync::Arc;

use imbl::Vector;

use crate::{
    model::{
        BeginRules, Body, Hash, Hold, HookedRun, Image, Lane, MAX_COLLECTED_BYTES, MAX_COLLECTED_IMAGES,
        MessageCollected, MessageContent, MessageDropped, MessageSteered, Outcome, OutcomeCause,
        OutcomeDetail, QueueMode, RunAccepted, RunBegun, RunEnded, RunId, RunSpec, Seq, SessionTime,
        StopReason, Timestamp, Usage,
    },
    turn::{DueAction, Turn, decision::DecisionBuilder},
};

/// A held run that may ask for permission to begin.
#[derive(Debug)]
pub struct BeginningRun {
    /// The text of its task and of the collected messages.
    pub input: Arc<str>,
    /// Its spec.
    pub spec: Arc<RunSpec>,
    /// What it waits for.
    pub hold: Hold,
    /// When it was accepted.
    pub accepted_at: Timestamp,
}

/// An accepted run that has not begun.
#[derive(Debug, Clone)]
pub(crate) struct QueuedRun {
    pub(super) accepted: Arc<RunAccepted>,
    pub(super) at: Timestamp,
    pub(super) seq: Seq,
    /// What it waits for before it may begin; `None` once it may.
    pub(super) hold: Option<Hold>,
    /// The messages that are part of its input, each with the number of its record.
    pub(super) collected: Vector<(Seq, Arc<MessageCollected>)>,
    /// Whether its own message was dropped, but not those that it has collected.
    pub(super) is_input_dropped: bool,
    /// The steering messages of which its input consists, if it is a follow-up run.
    pub(super) followed: Vector<Arc<MessageSteered>>,
    /// What hooks have decided about it; `None` before it begins.
    pub(super) hooks: Option<Arc<HookedRun>>,
}

impl QueuedRun {
    pub(super) fn new(accepted: &RunAccepted, at: Timestamp, seq: Seq) -> Self {
        let accepted = Arc::new(accepted.clone());
        let hold = accepted.hold;
        Self {
            hold,
            accepted,
            at,
            seq,
            collected: Vector::new(),
            is_input_dropped: false,
            followed: Vector::new(),
            hooks: None,
        }
    }

    /// The user message with which it begins: what hooks have made of its own message and the collected ones.
    pub(super) fn user_message(&self) -> MessageContent {
        let sent = self.sent_message();
        let Some(HookedRun { input, context, .. }) = self.hooks.as_deref() else { return sent };
        let text = input.as_ref().map(|input| self.accepted.after_unanswered(input));
        let text = text.unwrap_or_else(|| Arc::clone(&sent.text));
        let text = context.as_ref().map(|context| format!("{text}\n\n{context}").into()).unwrap_or(text);
        MessageContent { text, ..sent }
    }

    /// Its own message and the collected ones, in the order of arrival.
    pub(super) fn sent_message(&self) -> MessageContent {
        if self.collected.is_empty() {
            return self.accepted.user_message();
        }
        let own = (!self.is_input_dropped).then_some((&self.accepted.input, &self.accepted.images));
        let collected = self.collected().map(|message| (&message.text, &message.images));
        let (texts, images): (Vec<_>, Vec<_>) = own.into_iter().chain(collected).unzip();
        let text = texts.iter().map(|text| &***text).collect::<Vec<_>>().join("\n\n").into();
        let images: Arc<[Image]> = images.into_iter().flat_map(|images| images.iter().cloned()).collect();
        MessageContent::new(self.accepted.after_unanswered(&text), images)
    }

    /// Whether it is of messages that may be dropped, and that may join it; a submitted task is not.
    pub(super) fn is_of_messages(&self) -> bool {
        self.accepted.queueing.is_some()
    }

    /// Whether a message in mode `collect` joins it.
    pub(super) fn collects(&self) -> bool {
        self.hold.is_some()
            && self.accepted.queueing.is_some_and(|queueing| queueing.mode == QueueMode::Collect)
    }

    /// Whether it has space for another message: what one run collects stays within the limits of one task.
    pub(super) fn has_space_for(&self, message: &RunAccepted) -> bool {
        let own = (!self.is_input_dropped).then_some((&self.accepted.input, &self.accepted.images));
        let collected = self.collected().map(|message| (&message.text, &message.images));
        let (bytes, images) = own
            .into_iter()
            .chain(collected)
            .chain([(&message.input, &message.images)])
            .fold((0, 0), |(bytes, images), (text, more)| (bytes + text.len(), images + more.len()));
        bytes <= MAX_COLLECTED_BYTES && images <= MAX_COLLECTED_IMAGES
    }

    /// The messages in it that may be dropped, each with the number of its record; the oldest first.
    pub(super) fn messages(&self) -> impl Iterator<Item = (Seq, RunId)> {
        let own = (self.is_of_messages() && !self.is_input_dropped).then_some((self.seq, self.accepted.run));
        own.into_iter().chain(self.collected.iter().map(|(seq, message)| (*seq, message.message)))
    }

    /// The collected messages.
    pub(super) fn collected(&self) -> impl Iterator<Item = &Arc<MessageCollected>> {
        self.collected.iter().map(|(_, message)| message)
    }

    /// The hash of the request that sent the message, if it is one of `messages`.
    pub(super) fn request_hash_of(&self, message: RunId) -> Option<Hash> {
        match self.collected().find(|collected| collected.message == message) {
            Some(collected) => collected.request_hash,
            None => self.accepted.request_hash,
        }
    }

    /// The message's text, if it is one of `messages`.
    pub(super) fn text_of(&self, message: RunId) -> Option<&Arc<str>> {
        let collected = self.collected().find(|collected| collected.message == message);
        let own = (self.accepted.run == message).then_some(&self.accepted.input);
        own.or_else(|| collected.map(|collected| &collected.text))
    }
}

impl Turn {
    /// The queued run with this id.
    pub(super) fn queued(&self, run: RunId) -> Option<&Arc<QueuedRun>> {
        self.queue.iter().find(|queued| queued.accepted.run == run)
    }

    fn queued_mut(&mut self, run: RunId) -> Option<&mut QueuedRun> {
        self.queue.iter_mut().find(|queued| queued.accepted.run == run).map(Arc::make_mut)
    }

    /// The run that begins next, if only its hold keeps it from beginning.
    fn held_front(&self) -> Option<(&QueuedRun, Hold)> {
        let front = self.queue.front().filter(|_| self.current.is_none())?;
        Some((front, front.hold?))
    }

    /// The held run that begins next, with its hold, if it collects no more messages at this time. A clock that was set
    /// back to before its acceptance ends the collecting too.
    fn collected_front(&self, at: Timestamp) -> Option<(&QueuedRun, Hold)> {
        self.held_front().filter(|(front, hold)| hold.has_collected(at) || at < front.at)
    }

    /// What is due while no run is under way.
    pub(super) fn due_for_held(&self, at: Timestamp) -> Vec<DueAction> {
        let Some((front, hold)) = self.held_front() else { return Vec::new() };
        let may_ask = hold.needs_permission() && self.collected_front(at).is_some();
        let until = hold.until.map(DueAction::WakeAt);
        let due = if may_ask { Some(DueAction::Begin(front.accepted.run)) } else { until };
        due.into_iter().collect()
    }

    /// The held run that could begin at this time with a place in this lane alone.
    pub(super) fn wanted_place(&self, at: Timestamp) -> Option<(RunId, Lane)> {
        let (front, hold) = self.collected_front(at)?;
        Some((front.accepted.run, hold.lane.filter(|_| !hold.hooks)?))
    }

    /// The run that begins next, if it needs permission for that.
    pub(super) fn permission_seeker(&self) -> Option<RunId> {
        let (front, _) = self.held_front().filter(|(_, hold)| hold.needs_permission())?;
        Some(front.accepted.run)
    }

    /// The held run with this id, if it may ask for permission to begin: its text for hooks, its spec, and its hold.
    pub fn beginning_run(&self, run: RunId) -> Option<BeginningRun> {
        let (front, hold) = self.held_front().filter(|(front, _)| front.accepted.run == run)?;
        let (input, spec) = (front.sent_message().text, Arc::clone(&front.accepted.spec));
        Some(BeginningRun { input, spec, hold, accepted_at: front.at })
    }

    /// Sets what runs wait for that are accepted from now on. No part of the state: `run.accepted` has its own hold.
    pub const fn set_begin_rules(&mut self, rules: BeginRules) {
        self.begin_rules = rules;
    }

    /// The lane of the run under way, unless it waits for a person, for subagents alone, or for a time that a provider
    /// has named.
    pub fn occupied_lane(&self, now: SessionTime) -> Option<Lane> {
        let run = self.run().filter(|run| !run.leaves_its_place(now))?;
        Some(run.spec.lane)
    }

    pub(super) fn fold_run_accepted(&mut self, accepted: &RunAccepted, now: SessionTime) {
        self.accepted.insert(accepted.run);
        self.reopenable = None;
        let mut queued = QueuedRun::new(accepted, now.at, self.last);
        // The input of a follow-up run consists of unread messages, so they are not shown again.
        if self.steering.is_unread(|message| message.followup_run == accepted.run) {
            queued.followed = self.steering.take_for_next(&self.queue).into();
        }
        let queued = Arc::new(queued);
        match accepted.goes_first() {
            true => self.queue.push_front(queued),
            false => self.queue.push_back(queued),
        }
        self.begin_next(now);
    }

    pub(super) fn fold_run_begun(&mut self, begun: &RunBegun, now: SessionTime) {
        if let Some(queued) = self.queued_mut(begun.run) {
            queued.hold = None;
            queued.hooks.clone_from(&begun.hooks);
        }
        self.begin_next(now);
    }

    pub(super) fn fold_collected(&mut self, collected: &MessageCollected) {
        let seq = self.last;
        let Some(queued) = self.queued_mut(collected.run) else { return };
        queued.collected.push_back((seq, Arc::new(collected.clone())));
        if let Some(hold) = &mut queued.hold {
            hold.until = Some(collected.until);
        }
        self.steering.note_recorded(collected.run, collected.message);
    }

    pub(super) fn fold_dropped(&mut self, dropped: &MessageDropped) {
        let front = || self.queue.front().map(|queued| queued.accepted.run);
        let of = dropped.run.or_else(|| self.run().map(|run| run.id)).or_else(front);
        self.steering.drop_message(dropped, of);
        if let Some(queued) = dropped.run.and_then(|run| self.queued_mut(run)) {
            queued.collected.retain(|(_, collected)| collected.message != dropped.message);
            queued.is_input_dropped |= queued.accepted.run == dropped.message;
        }
    }

    /// Begins the first queued run, unless a run is under way or it is held.
    pub(super) fn begin_next(&mut self, now: SessionTime) {
        if self.current.is_none()
            && let Some(next) = self.queue.front().filter(|next| next.hold.is_none()).cloned()
        {
            self.queue.pop_front();
            self.start_run(&next, now);
        }
    }
}

impl DecisionBuilder {
    /// Records the acceptance of a run, with what it waits for. `until`: the end of the time in which it collects
    /// messages.
    pub(super) fn accept_run(&mut self, accepted: RunAccepted, until: Option<Timestamp>) {
        let hold = self.turn.begin_rules.hold(accepted.spec.lane, until);
        self.record(Body::RunAccepted(Box::new(RunAccepted { hold, ..accepted })));
    }

    /// Begins the run that its hold keeps from beginning, if that needs no permission and its time is over.
    pub(super) fn begin_held_run(&mut self) {
        if let Some((front, hold)) = self.turn.collected_front(self.now.at)
            && !hold.needs_permission()
        {
            let run = front.accepted.run;
            self.record(Body::RunBegun(RunBegun { run, hooks: None }));
        }
    }

    /// Begins the held run, unless it is not next any more, collects again, or is refused by a hook.
    pub(super) fn on_may_begin(&mut self, run: RunId, hooks: Option<&Arc<HookedRun>>) {
        let front = self.turn.collected_front(self.now.at);
        if !front.is_some_and(|(front, _)| front.accepted.run == run) {
            return;
        }
        match hooks.and_then(|hooks| hooks.refusal_text()) {
            Some(refusal) => {
                self.record_unbegun_end(run, Outcome::Refused, OutcomeCause::Hook { refusal });
            }
            None => self.record(Body::RunBegun(RunBegun { run, hooks: hooks.cloned() })),
        }
    }

    pub(super) fn end_queued(&mut self, run: RunId, reason: StopReason) {
        self.record_unbegun_end(run, Outcome::Stopped, OutcomeCause::Stop { reason });
    }

    fn record_unbegun_end(&mut self, run: RunId, outcome: Outcome, cause: OutcomeCause) {
        let ended = OutcomeDetail::with_cause(outcome, cause);
        self.record(Body::RunEnded(RunEnded { run, ended, iterations: 0, usage: Usage::default() }));
    }
}

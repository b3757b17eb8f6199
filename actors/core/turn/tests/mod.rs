//! Tests of the core: single cases by file, and random sequences of inputs in `fuzz/`. A [`Driver`] decides inputs and
//! makes their records durable at once.

mod adoption;
mod approval;
mod budget_warning;
mod calls;
mod cases;
mod compaction;
mod delegate;
mod doubt;
mod fallback;
mod flush;
mod fuzz;
mod grace;
mod grace_room;
mod hold;
mod ladder;
mod learned;
mod limits;
mod loops;
mod messages;
mod outbox;
mod reopen;
mod steer;
mod store_limits;
mod submissions;
mod title;
mod todo;
mod too_long;
mod verification;
mod vision;
mod waits;

use std::sync::Arc;

use store_limits::SharedStore;

use crate::{
    journal::IndexRow,
    model::{
        AgentName, AssistantMessage, AttemptId, Body, CallId, Durable, EffectClass, Failure, FailureClass,
        FinishReason, Hash, ImportedHistory, InDoubtPolicy, Incarnation, Limits, Message, MessageSteered,
        ModelAnswer, Record, RunAccepted, RunId, RunSpec, SessionId, SessionOpened, SessionRevived,
        SessionTime, Timestamp, ToolCall, Usage,
    },
    turn::{CallAdmission, DueAction, FailoverOptions, Input, RenderCursor, ReplayedSession, Turn},
};

/// Checks the view, a letter for each message, and the actions that are due.
fn check(driver: &Driver, view: &str, due: &[DueAction]) {
    assert_eq!(driver.view(), view);
    assert_eq!(driver.turn.due(driver.now), due);
}

/// A session, its journal, and the time.
#[derive(Debug, Clone)]
pub(super) struct Driver {
    pub(super) turn: Turn,
    pub(super) records: Vec<Durable<Arc<Record>>>,
    pub(super) now: SessionTime,
    /// The policy for calls in doubt of the runs that are submitted.
    pub(super) in_doubt: InDoubtPolicy,
    /// The store that the session shares with others; without one, all reservations fit.
    pub(super) store: Option<SharedStore>,
    /// The index rows that were written, without a shared store.
    pub(super) index: Vec<IndexRow>,
    revivals: u32,
}

impl Driver {
    /// A session that was just opened.
    pub(super) fn new() -> Self {
        let session = SessionId::from_bits(1);
        let turn = ReplayedSession::empty(session).into_turn(&[]);
        let now = SessionTime { at: Timestamp(1_000_000), active_ms: 0 };
        let in_doubt = InDoubtPolicy::default();
        let mut driver =
            Self { turn, records: Vec::new(), now, in_doubt, store: None, index: Vec::new(), revivals: 1 };
        let incarnation = Incarnation { epoch: 1, revival: 1 };
        driver.feed(&Input::Opened(SessionOpened {
            key: "k".into(),
            agent: AgentName::default(),
            prompt: "p".into(),
            incarnation,
            boot: "b".into(),
        }));
        driver
    }

    /// Decides the input, makes the records durable, applies them, and returns their names.
    pub(super) fn feed(&mut self, input: &Input) -> Vec<&'static str> {
        self.feed_all(std::slice::from_ref(input))
    }

    /// Like `feed`, with several inputs in one decision.
    pub(super) fn feed_all(&mut self, inputs: &[Input]) -> Vec<&'static str> {
        let decided = if let Some(store) = self.store.clone() {
            store.decide(self, inputs)
        } else {
            let append = self.turn.decide(self.now, inputs, |_| None);
            self.index.extend(append.index);
            append.records
        };
        for record in &decided {
            let durable = Durable::mark_durable(Arc::clone(record));
            self.turn.apply(&durable);
            self.records.push(durable);
        }
        decided.iter().map(|record| record.body.kind().name()).collect()
    }

    /// Submits run `n`, with these limits.
    pub(super) fn submit(&mut self, n: u128, limits: Limits) -> Vec<&'static str> {
        self.submit_to(&["p/m"], n, (limits, ImportedHistory::default()))
    }

    /// Like `submit`, with this chain and imported history. Returns no record if the history conflicts.
    pub(super) fn submit_to(
        &mut self,
        chain: &[&str],
        n: u128,
        (limits, history): (Limits, ImportedHistory),
    ) -> Vec<&'static str> {
        let chain = chain.iter().map(|link| link.parse().unwrap()).collect();
        let spec = RunSpec {
            tools: vec!["tool".into()],
            limits,
            in_doubt: self.in_doubt,
            ..RunSpec::new(chain, "/w")
        };
        let accepted = RunAccepted::new(run(n), format!("task {n}"), Arc::new(spec));
        let accepted = Box::new(RunAccepted { history: Arc::new(history), ..accepted });
        let submitted = Input::Submitted { accepted, key: None };
        match self.turn.start_decision(self.now).has_history_conflict(&submitted) {
            true => Vec::new(),
            false => self.feed(&submitted),
        }
    }

    /// Submits run `n` with this input. `change` changes the spec of the run before, or the default spec.
    pub(super) fn submit_with(&mut self, n: u128, input: &str, change: impl FnOnce(&mut RunSpec)) {
        let last = self.records.iter().rev().find_map(|record| {
            let Body::RunAccepted(accepted) = &record.body else { return None };
            Some(RunSpec::clone(&accepted.spec))
        });
        let mut spec = last.unwrap_or_else(limits::spec);
        change(&mut spec);
        let accepted = Box::new(RunAccepted::new(run(n), input, Arc::new(spec)));
        self.feed(&Input::Submitted { accepted, key: None });
    }

    /// Sends the `id`th steering message to run `n`.
    pub(super) fn steer(&mut self, n: u128, id: u128) -> Vec<&'static str> {
        let text = said(id).into();
        self.feed(&Input::Steer(MessageSteered {
            run: run(n),
            text,
            followup_run: run(id),
            request_hash: None,
        }))
    }

    /// The process crashes, and the next one revives the session from its records.
    pub(super) fn crash(&mut self) -> Vec<&'static str> {
        self.crash_into("b")
    }

    /// Like `crash`, on this boot of the machine.
    pub(super) fn crash_into(&mut self, boot: &str) -> Vec<&'static str> {
        let mut dormant = ReplayedSession::empty(SessionId::from_bits(1));
        self.records.iter().for_each(|record| dormant.fold(record));
        self.turn = dormant.into_turn(&[]);
        self.revivals += 1;
        let incarnation = Incarnation { epoch: 1, revival: self.revivals };
        self.feed(&Input::Revived(SessionRevived { incarnation, boot: boot.into() }))
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now = SessionTime { at: self.now.at.plus_ms(ms), active_ms: self.now.active_ms + ms };
    }

    pub(super) fn lease(&mut self, call: CallId, attempt: u32) -> Vec<&'static str> {
        let candidates = self.turn.candidates().unwrap_or_default();
        let Some(first) = candidates.first() else { return Vec::new() };
        self.feed(&Input::Leased { id: AttemptId { call, attempt }, model: first.model.clone() })
    }

    /// The model answers with this number of calls, or with text if there are none. No answer repeats an earlier one.
    pub(super) fn answer(&mut self, calls: usize, effect: EffectClass) -> Vec<&'static str> {
        self.answer_with(if calls == 0 { "done" } else { "" }, calls, FinishReason::Stop, effect)
    }

    pub(super) fn answer_with(
        &mut self,
        text: &str,
        calls: usize,
        finish: FinishReason,
        effect: EffectClass,
    ) -> Vec<&'static str> {
        let seq = self.turn.last_seq();
        let plan = |n: usize| CallAdmission::Admit {
            tool: "tool".into(),
            intent: effect.into(),
            arguments: Hash::of(format!("{seq} {n}").as_bytes()),
            approval: None,
            hooks: None,
        };
        self.answer_planned(text, finish, (0..calls).map(plan).collect())
    }

    /// The model answers with one call for each plan.
    pub(super) fn answer_planned(
        &mut self,
        text: &str,
        finish: FinishReason,
        plans: Vec<CallAdmission>,
    ) -> Vec<&'static str> {
        let call = |n| ToolCall { id: format!("v{n}"), name: "tool".into(), arguments: r#"{"a":1}"#.into() };
        let message = AssistantMessage {
            text: text.into(),
            calls: (0..plans.len()).map(call).collect(),
            ..Default::default()
        };
        self.answer_message(message, finish, plans)
    }

    /// The model answers with this message, which has one call for each plan.
    pub(super) fn answer_message(
        &mut self,
        message: AssistantMessage,
        finish: FinishReason,
        plans: Vec<CallAdmission>,
    ) -> Vec<&'static str> {
        let Some(started) = self.turn.model_started().cloned() else { return Vec::new() };
        let usage = Some(Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() });
        let answer = Arc::new(ModelAnswer { message, finish, usage });
        self.feed(&Input::Answered { started, answer, admissions: plans.into() })
    }

    /// Grants a permit to every tool call that is due, and returns the numbers of the calls under way.
    pub(super) fn permit_all(&mut self) -> Vec<u32> {
        for effect in self.turn.due(self.now) {
            if let DueAction::Acquire(AttemptId { call, attempt }) = effect
                && call.n > 0
            {
                self.feed(&Input::Permitted(AttemptId { call, attempt }));
            }
        }
        let due = self.turn.due(self.now).into_iter();
        due.filter_map(|effect| {
            if let DueAction::RunTool(AttemptId { call, .. }) = effect { Some(call.n) } else { None }
        })
        .collect()
    }

    pub(super) fn fail(&mut self, class: FailureClass) -> Vec<&'static str> {
        self.fail_with(class, FailoverOptions::default())
    }

    /// Like `fail`, with this report of the gates.
    pub(super) fn fail_with(&mut self, class: FailureClass, outlook: FailoverOptions) -> Vec<&'static str> {
        let Some(started) = self.turn.model_started().cloned() else { return Vec::new() };
        let (call, attempt) = (started.call, started.attempt);
        self.feed(&Input::ModelFailed {
            id: AttemptId { call, attempt },
            failure: Box::new(Failure::new(class, "x")),
            failover: outlook,
        })
    }

    /// The messages of the view that contain a text: the letter of each, and how often the text is in it.
    pub(super) fn found(&self, text: &str) -> Vec<(char, usize)> {
        let (messages, _) = self.turn.render(RenderCursor::default());
        let found = messages.iter().map(|message| (letter(message), content(message).matches(text).count()));
        found.filter(|(_, times)| *times > 0).collect()
    }

    /// The contents of the tool results in the view.
    pub(super) fn contents(&self) -> Vec<String> {
        let (messages, _) = self.turn.render(RenderCursor::default());
        let content = |message: Message| match message {
            Message::Tool { content, .. } => Some(content.text_with_note().to_string()),
            Message::System(_) | Message::User(_) | Message::Assistant(_) => None,
        };
        messages.into_iter().filter_map(content).collect()
    }

    /// The view, a letter for each message.
    pub(super) fn view(&self) -> String {
        letters(&self.turn)
    }
}

pub(super) const fn run(n: u128) -> RunId {
    RunId::from_bits(n)
}

pub(super) fn model(n: u128, iteration: u32) -> CallId {
    CallId { run: run(n), iteration, n: 0 }
}

pub(super) const fn tool(n: u128, iteration: u32, call: u32) -> CallId {
    CallId { run: run(n), iteration, n: call }
}

/// The text of the `id`th steering message.
pub(super) fn said(id: u128) -> String {
    format!("[message {id}]")
}

/// A letter for each message of the view: u(ser), a(ssistant), c (assistant with calls), t(ool).
pub(super) fn letters(turn: &Turn) -> String {
    turn.render(RenderCursor::default()).0.iter().map(letter).collect()
}

fn letter(message: &Message) -> char {
    match message {
        Message::System(_) => 's',
        Message::User(_) => 'u',
        Message::Assistant(said) if said.calls.is_empty() => 'a',
        Message::Assistant(_) => 'c',
        Message::Tool { .. } => 't',
    }
}

pub(super) fn content(message: &Message) -> String {
    match message {
        Message::System(text) => text.to_string(),
        Message::User(content) | Message::Tool { content, .. } => content.text_with_note().to_string(),
        Message::Assistant(said) => said.text.clone(),
    }
}

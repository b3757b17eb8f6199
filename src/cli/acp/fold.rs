//! Records and events of a session in, updates for the client out. Pure: the same records give the same updates, while a
//! run is under way and when its session is loaded.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use agent_client_protocol::v1::schema::{
    ContentChunk, MessageId, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionInfoUpdate,
    SessionUpdate,
};
use hermod_actors::model::{
    AsideAnswered, AsideJob, Attempt, Body, CallAdmitted, CallEnded, CallId, CallStarted, EventBody,
    ImportedHistory, ModelAnswered, OutcomeDetail, Record, RunAccepted, RunId, SessionId, TodoList,
    TodoStatus,
};

use super::{answer_text::SentText, questions::OpenQuestion, tool_calls::OpenCall};
use crate::cli::progress::{format_failure, format_wait};

/// What follows from a record or an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    /// The client is shown this.
    Update(Box<SessionUpdate>),
    /// The user is asked about this call.
    Ask(CallId),
    /// Nothing is asked about this call any more.
    Settle(CallId),
    /// The run has its outcome.
    End(RunId, OutcomeDetail),
}

/// What must be known of earlier records to show later ones.
#[derive(Debug)]
pub(super) struct UpdateFold {
    folder: PathBuf,
    text: SentText,
    reasoning: SentText,
    calls: BTreeMap<CallId, OpenCall>,
    /// What waits for an answer of the user.
    questions: BTreeMap<CallId, OpenQuestion>,
    open_runs: BTreeSet<RunId>,
    /// Runs whose task the client has sent itself: it shows that already.
    own_runs: BTreeSet<RunId>,
    /// Sessions of subagents by the call that has started them.
    subagents: BTreeMap<CallId, Vec<SessionId>>,
    /// Calls that have printed something since that was last shown.
    printed: BTreeSet<CallId>,
}

impl UpdateFold {
    /// A fold from the first record of a session on, whose tools work in `folder`.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            text: SentText::default(),
            reasoning: SentText::default(),
            calls: BTreeMap::new(),
            questions: BTreeMap::new(),
            open_runs: BTreeSet::new(),
            own_runs: BTreeSet::new(),
            subagents: BTreeMap::new(),
            printed: BTreeSet::new(),
        }
    }

    /// The client has sent the task of this run.
    pub(super) fn own(&mut self, run: RunId) {
        self.own_runs.insert(run);
    }

    /// The runs without an outcome.
    pub(super) const fn open_runs(&self) -> &BTreeSet<RunId> {
        &self.open_runs
    }

    /// What waits for an answer of the user.
    pub(super) const fn questions(&self) -> &BTreeMap<CallId, OpenQuestion> {
        &self.questions
    }

    /// The sessions of subagents that have not ended.
    pub(super) fn subagents(&self) -> impl Iterator<Item = SessionId> {
        self.subagents.values().flatten().copied()
    }

    /// The stream was joined anew: the next deltas may repeat what was shown.
    pub(super) const fn rejoin(&mut self) {
        self.text.rejoin();
        self.reasoning.rejoin();
    }

    /// Whether something was printed that is not shown yet.
    pub(super) fn has_printed(&self) -> bool {
        !self.printed.is_empty()
    }

    /// What calls have printed since the last time.
    pub(super) fn take_printed(&mut self) -> Vec<SessionUpdate> {
        let printed = std::mem::take(&mut self.printed);
        let calls = printed.into_iter().filter_map(|id| Some((id, self.calls.get(&id)?)));
        calls.map(|(id, call)| SessionUpdate::ToolCallUpdate(call.printed(id))).collect()
    }

    /// What follows from an event that is no record.
    pub(super) fn event(&mut self, event: &EventBody) -> Vec<Effect> {
        match event {
            EventBody::TextDelta { call, attempt, delta } => {
                let text = self.text.delta((*call, *attempt), delta);
                self.agent_text(*call, *attempt, text)
            }
            EventBody::ReasoningDelta { call, attempt, delta } => {
                let text = self.reasoning.delta((*call, *attempt), delta);
                thought(*call, *attempt, text)
            }
            EventBody::Retry { call, attempt } if call.is_model_call() => self.void(*call, *attempt),
            EventBody::ToolProgress { call, note, .. } => {
                if let Some(open) = self.calls.get_mut(call) {
                    open.print(note);
                    self.printed.insert(*call);
                }
                Vec::new()
            }
            EventBody::Recorded { .. }
            | EventBody::Status(_)
            | EventBody::Lifecycle(_)
            | EventBody::Compaction(_)
            | EventBody::ThinkingStart { .. }
            | EventBody::ThinkingEnd { .. }
            | EventBody::ToolCallStreamed { .. }
            | EventBody::ToolCallParsed { .. }
            | EventBody::ToolStart { .. }
            | EventBody::ToolEnd { .. }
            | EventBody::IterationEnd { .. }
            | EventBody::Retry { .. } => Vec::new(),
        }
    }

    /// What follows from the next record. Of a record that is read again (`is_replayed`) also the task of the user is shown.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds show nothing")]
    pub(super) fn record(&mut self, record: &Record, is_replayed: bool) -> Vec<Effect> {
        match &record.body {
            Body::RunAccepted(accepted) => self.accepted(accepted, is_replayed),
            Body::MessageSteered(steered) => user_text(&steered.text, 0),
            Body::MessageCollected(collected) => user_text(&collected.text, collected.images.len()),
            Body::RunReopened(reopened) => {
                self.open_runs.insert(reopened.run);
                Vec::new()
            }
            Body::RunEnded(ended) => self.ended(ended.run, &ended.ended),
            Body::ModelAnswered(answered) => self.answered(answered),
            // These are news only while they last.
            Body::ModelFailed(failed) if !is_replayed && failed.retry_at.is_some() => {
                news(&format_failure(failed, record))
            }
            Body::ModelWaiting(waiting) if !is_replayed => news(&format_wait(waiting, record)),
            Body::AsideAnswered(answered) => title(answered),
            Body::CallAdmitted(admitted) => self.admitted(admitted),
            Body::CallStarted(started) => self.started(started),
            Body::CallEnded(ended) => self.call_ended(ended),
            Body::ApprovalRequested(request) => {
                let call = request.call;
                let shown = match self.calls.get(&call) {
                    Some(open) => open.asked(call, &self.folder, &request.question),
                    None => super::tool_calls::asked_below(call, &request.question),
                };
                let question = OpenQuestion {
                    call,
                    text: request.question.clone(),
                    wants_text: request.wants_text,
                    has_rules: !request.allow_rules.is_empty(),
                    shown,
                };
                self.questions.insert(call, question);
                vec![Effect::Ask(call)]
            }
            Body::ApprovalAnswered(answered) => self.settle(answered.call),
            Body::ChildEnded(ended) => {
                if let Some(sessions) = self.subagents.get_mut(&ended.call) {
                    sessions.retain(|session| *session != ended.child.session);
                }
                Vec::new()
            }
            Body::TodoChanged(changed) => vec![update(SessionUpdate::Plan(plan(&changed.items)))],
            _ => Vec::new(),
        }
    }

    fn accepted(&mut self, accepted: &RunAccepted, is_replayed: bool) -> Vec<Effect> {
        self.open_runs.insert(accepted.run);
        if !is_replayed && self.own_runs.contains(&accepted.run) {
            return Vec::new();
        }
        let mut effects = imported(&accepted.history);
        effects.extend(user_text(&accepted.user_message().text, accepted.images.len()));
        effects
    }

    fn ended(&mut self, run: RunId, ended: &OutcomeDetail) -> Vec<Effect> {
        self.open_runs.remove(&run);
        self.own_runs.remove(&run);
        self.calls.retain(|call, _| call.run != run);
        self.subagents.retain(|call, _| call.run != run);
        self.printed.retain(|call| call.run != run);
        let asked: Vec<CallId> = self.questions.keys().filter(|call| call.run == run).copied().collect();
        let settled = asked.into_iter().flat_map(|call| self.settle(call)).collect::<Vec<_>>();
        settled.into_iter().chain([Effect::End(run, ended.clone())]).collect()
    }

    fn answered(&mut self, answered: &ModelAnswered) -> Vec<Effect> {
        let ModelAnswered { call, attempt, message, .. } = answered;
        if answered.flaw.is_some_and(hermod_actors::model::Flaw::discards) {
            return self.void(*call, *attempt);
        }
        let reasoning = self.reasoning.complete((*call, *attempt), &message.reasoning);
        let mut effects = thought(*call, *attempt, reasoning);
        let text = self.text.complete((*call, *attempt), &message.text);
        effects.extend(self.agent_text(*call, *attempt, text));
        for (n, requested) in (1..).zip(&message.calls) {
            let (id, open) = (CallId { n, ..*call }, OpenCall::new(&requested.name, &requested.arguments));
            effects.push(update(SessionUpdate::ToolCall(open.announced(id, &self.folder))));
            self.calls.insert(id, open);
        }
        effects
    }

    fn admitted(&mut self, admitted: &CallAdmitted) -> Vec<Effect> {
        let arguments = admitted.hooks.as_ref().and_then(|hooks| hooks.arguments.as_deref());
        let Some(open) = self.calls.get_mut(&admitted.call) else { return Vec::new() };
        let changed = open.admitted((admitted.call, &self.folder), (&admitted.tool, arguments));
        changed.into_iter().map(|changed| update(SessionUpdate::ToolCallUpdate(changed))).collect()
    }

    fn started(&mut self, started: &CallStarted) -> Vec<Effect> {
        if !started.children.is_empty() {
            let sessions = started.children.iter().map(|child| child.session).collect();
            self.subagents.insert(started.call, sessions);
        }
        vec![update(SessionUpdate::ToolCallUpdate(super::tool_calls::in_progress(started.call)))]
    }

    fn call_ended(&mut self, ended: &CallEnded) -> Vec<Effect> {
        self.printed.remove(&ended.call);
        self.subagents.remove(&ended.call);
        let mut effects = self.settle(ended.call);
        if let Some(open) = self.calls.remove(&ended.call) {
            effects.push(update(SessionUpdate::ToolCallUpdate(open.ended(ended.call, &ended.end))));
        }
        effects
    }

    fn settle(&mut self, call: CallId) -> Vec<Effect> {
        self.questions.remove(&call).map(|_| Effect::Settle(call)).into_iter().collect()
    }

    /// The text of a call does not count.
    fn void(&mut self, call: CallId, attempt: Attempt) -> Vec<Effect> {
        self.reasoning.void(call);
        let mark = self.text.void(call).to_owned();
        self.agent_text(call, attempt, mark)
    }

    #[expect(clippy::unused_self, reason = "beside its uses")]
    fn agent_text(&self, call: CallId, attempt: Attempt, text: String) -> Vec<Effect> {
        chunk(text, message_id(call, attempt))
            .map(SessionUpdate::AgentMessageChunk)
            .map(update)
            .into_iter()
            .collect()
    }
}

/// A text that the client shows as the agent's, of no model call.
pub(super) fn note(text: String) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()))
}

/// What delays a run, as a thought: ACP has nothing else for it that all clients show.
fn news(line: &str) -> Vec<Effect> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let text = format!("\n*({})*\n", words.join(" "));
    vec![update(SessionUpdate::AgentThoughtChunk(ContentChunk::new(text.into())))]
}

fn thought(call: CallId, attempt: Attempt, text: String) -> Vec<Effect> {
    chunk(text, message_id(call, attempt))
        .map(SessionUpdate::AgentThoughtChunk)
        .map(update)
        .into_iter()
        .collect()
}

fn message_id(call: CallId, attempt: Attempt) -> MessageId {
    MessageId::new(format!("{call}.{attempt}"))
}

/// A chunk; `None` of an empty text.
fn chunk(text: String, id: MessageId) -> Option<ContentChunk> {
    (!text.is_empty()).then(|| ContentChunk::new(text.into()).message_id(id))
}

fn update(update: SessionUpdate) -> Effect {
    Effect::Update(Box::new(update))
}

/// What the user has said. The pictures are not at hand, so they are only counted.
fn user_text(text: &Arc<str>, images: usize) -> Vec<Effect> {
    let pictures = match images {
        0 => String::new(),
        1 => "\n[1 picture]".to_owned(),
        n => format!("\n[{n} pictures]"),
    };
    vec![update(SessionUpdate::UserMessageChunk(ContentChunk::new(format!("{text}{pictures}").into())))]
}

/// A conversation from outside, without its tool calls.
fn imported(history: &ImportedHistory) -> Vec<Effect> {
    let rounds = history.rounds.iter();
    rounds
        .flat_map(|round| {
            user_text(&round.user, 0).into_iter().chain([update(note(round.answer.text.clone()))])
        })
        .collect()
}

fn title(answered: &AsideAnswered) -> Vec<Effect> {
    let is_title = answered.call.job() == Some(AsideJob::Title) && answered.unusable.is_none();
    let info = is_title.then(|| SessionInfoUpdate::new().title(answered.text.to_string()));
    info.map(SessionUpdate::SessionInfoUpdate).map(update).into_iter().collect()
}

/// The todo list as a plan. ACP has no state for what was given up, so such items are left out.
fn plan(items: &TodoList) -> Plan {
    let entries = items.0.iter().filter_map(|item| {
        let status = match item.status {
            TodoStatus::Pending => PlanEntryStatus::Pending,
            TodoStatus::InProgress => PlanEntryStatus::InProgress,
            TodoStatus::Completed => PlanEntryStatus::Completed,
            TodoStatus::Cancelled => return None,
        };
        Some(PlanEntry::new(item.content.clone(), PlanEntryPriority::Medium, status))
    });
    Plan::new(entries.collect())
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        ApprovalAnswered, ApprovalDecision, ApprovalRequested, ApprovalScope, AssistantMessage, CallEnd,
        DecisionSource, Failure, FailureClass, FinishReason, Flaw, ModelFailed, Outcome, RunEnded, RunSpec,
        Timestamp, TodoChanged, TodoItem, ToolCall, Usage,
    };

    use super::*;

    const RUN: RunId = RunId::from_bits(1);
    const MODEL: CallId = CallId { run: RUN, iteration: 1, n: 0 };
    const TOOL: CallId = CallId { run: RUN, iteration: 1, n: 1 };

    fn accepted(text: &str) -> Body {
        let spec = Arc::new(RunSpec::new(vec!["p/m".parse().unwrap()], "/w"));
        Body::RunAccepted(Box::new(RunAccepted::new(RUN, text, spec)))
    }

    fn answered(text: &str, flaw: Option<Flaw>, calls: &[(&str, &str)]) -> Body {
        let calls = calls.iter().map(|(name, arguments)| ToolCall {
            id: "x".into(),
            name: (*name).into(),
            arguments: (*arguments).into(),
        });
        let message = AssistantMessage {
            text: text.into(),
            reasoning: "why".into(),
            calls: calls.collect(),
            ..AssistantMessage::default()
        };
        Body::ModelAnswered(Box::new(ModelAnswered {
            call: MODEL,
            attempt: 1,
            message: Arc::new(message),
            finish: FinishReason::Stop,
            flaw,
            fallback: None,
            usage: None,
            anomaly: None,
        }))
    }

    fn ended(outcome: Outcome) -> Body {
        let ended = OutcomeDetail { outcome, cause: None };
        Body::RunEnded(RunEnded { run: RUN, ended, iterations: 1, usage: Usage::default() })
    }

    fn requested() -> Body {
        Body::ApprovalRequested(ApprovalRequested {
            call: TOOL,
            attempt: 0,
            question: "May I?".into(),
            rules: Vec::new(),
            allow_rules: vec!["shell(ls)".into()],
            wants_text: false,
            expires_at: Timestamp(9),
        })
    }

    fn decided() -> Body {
        let (decision, by, scope) = (ApprovalDecision::Allow, DecisionSource::Person, ApprovalScope::Once);
        Body::ApprovalAnswered(ApprovalAnswered { call: TOOL, decision, by, scope })
    }

    fn delta(text: &str) -> EventBody {
        EventBody::TextDelta { call: MODEL, attempt: 1, delta: text.into() }
    }

    fn describe(effect: &Effect) -> String {
        let chunk = |chunk: &ContentChunk| {
            serde_json::to_value(&chunk.content).unwrap()["text"].as_str().unwrap().to_owned()
        };
        match effect {
            Effect::Update(update) => match &**update {
                SessionUpdate::UserMessageChunk(text) => format!("user {}", chunk(text)),
                SessionUpdate::AgentMessageChunk(text) => format!("agent {}", chunk(text)),
                SessionUpdate::AgentThoughtChunk(text) => format!("thought {}", chunk(text)),
                SessionUpdate::ToolCall(call) => format!("call {}", call.title),
                SessionUpdate::ToolCallUpdate(call) => format!("update {:?}", call.fields.status),
                SessionUpdate::Plan(plan) => format!("plan of {}", plan.entries.len()),
                _ => "other".to_owned(),
            },
            Effect::Ask(call) => format!("ask {}", call.n),
            Effect::Settle(call) => format!("settle {}", call.n),
            Effect::End(_, ended) => format!("end {ended}"),
        }
    }

    /// Something that a fold is given.
    enum Given {
        Record(Body),
        Replayed(Body),
        Event(EventBody),
        Rejoined,
    }

    #[track_caller]
    fn check(given: Vec<Given>, expect: &[&str]) -> UpdateFold {
        let mut fold = UpdateFold::new("/w".into());
        fold.own(RUN);
        let record = |body| Record { at: Timestamp(0), active_ms: 0, body };
        let mut got = Vec::new();
        for one in given {
            let effects = match one {
                Given::Record(body) => fold.record(&record(body), false),
                Given::Replayed(body) => fold.record(&record(body), true),
                Given::Event(event) => fold.event(&event),
                Given::Rejoined => {
                    fold.rejoin();
                    Vec::new()
                }
            };
            got.extend(effects.iter().map(describe));
        }
        assert_eq!(got, expect);
        fold
    }

    #[test]
    fn a_streamed_answer_is_shown_once() {
        let given = vec![
            Given::Record(accepted("hi")),
            Given::Event(delta("one ")),
            Given::Event(delta("two")),
            Given::Record(answered("one two three", None, &[])),
            Given::Record(ended(Outcome::Completed)),
        ];
        check(given, &["agent one ", "agent two", "thought why", "agent  three", "end completed"]);
    }

    #[test]
    fn a_replayed_session_has_the_prompts_too() {
        let given = vec![
            Given::Replayed(accepted("hi")),
            Given::Replayed(answered("one", None, &[("shell", "{\"command\":\"ls\"}")])),
            Given::Replayed(Body::CallEnded(CallEnded::new(TOOL, 1, CallEnd::ok("done")))),
            Given::Replayed(ended(Outcome::Stopped)),
        ];
        let expect =
            ["user hi", "thought why", "agent one", "call ls", "update Some(Completed)", "end stopped"];
        let fold = check(given, &expect);
        assert!(fold.calls.is_empty() && fold.open_runs.is_empty(), "nothing is left of ended runs");
    }

    #[test]
    fn a_discarded_answer_is_marked() {
        let given = vec![
            Given::Event(delta("half")),
            Given::Record(answered("half", Some(Flaw::Malformed), &[("shell", "{")])),
            Given::Event(EventBody::Retry { call: MODEL, attempt: 2 }),
        ];
        let mark = "agent \n\n*(What stands above is void: the model is asked again.)*\n\n";
        check(given, &["agent half", mark]);
    }

    #[test]
    fn a_stream_that_is_joined_anew_repeats_nothing() {
        let given = vec![
            Given::Event(delta("one ")),
            Given::Rejoined,
            Given::Event(delta("one two")),
            Given::Record(answered("one two", None, &[])),
        ];
        check(given, &["agent one ", "agent two", "thought why"]);
    }

    #[test]
    fn a_question_is_asked_until_it_is_answered_or_its_run_ends() {
        let call = || Given::Record(answered("", None, &[("shell", "{\"command\":\"ls\"}")]));
        let given =
            vec![call(), Given::Record(requested()), Given::Record(decided()), Given::Record(decided())];
        check(given, &["thought why", "call ls", "ask 1", "settle 1"]);
        let given = vec![call(), Given::Record(requested()), Given::Record(ended(Outcome::Stopped))];
        let fold = check(given, &["thought why", "call ls", "ask 1", "settle 1", "end stopped"]);
        assert!(fold.questions.is_empty());
        let fold = check(vec![call(), Given::Record(requested())], &["thought why", "call ls", "ask 1"]);
        let question = &fold.questions[&TOOL];
        assert_eq!((question.has_rules, question.shown.fields.title.as_deref()), (true, Some("ls")));
    }

    #[test]
    fn a_failure_is_news_while_the_model_is_asked_again() {
        let failed = |retry_at| {
            let failure = Failure::new(FailureClass::Overloaded, "busy");
            Body::ModelFailed(ModelFailed { call: MODEL, attempt: 1, failure, retry_at, fallback: None })
        };
        let news = "thought \n*(model 1 attempt 1 failed: overloaded: busy; asked again in 5.0 s)*\n";
        let at = Some(Timestamp(5_000));
        check(
            vec![Given::Record(failed(at)), Given::Replayed(failed(at)), Given::Record(failed(None))],
            &[news],
        );
    }

    #[test]
    fn items_that_were_given_up_are_no_part_of_the_plan() {
        let item = |status| TodoItem { id: "1".into(), content: "x".into(), status };
        let items = TodoList(vec![
            item(TodoStatus::Pending),
            item(TodoStatus::Cancelled),
            item(TodoStatus::Completed),
        ]);
        let changed = Body::TodoChanged(TodoChanged { call: TOOL, items: Arc::new(items) });
        check(vec![Given::Record(changed)], &["plan of 2"]);
    }

    #[test]
    fn what_is_printed_is_shown_when_it_is_taken() {
        let progress = |call| EventBody::ToolProgress { call, attempt: 1, note: "line".into() };
        let given = vec![
            Given::Record(answered("", None, &[("shell", "{}")])),
            Given::Event(progress(TOOL)),
            Given::Event(progress(TOOL)),
            Given::Event(progress(CallId { n: 7, ..TOOL })),
        ];
        let mut fold = check(given, &["thought why", "call shell"]);
        assert!(fold.has_printed());
        assert_eq!(fold.take_printed().len(), 1);
        assert!(!fold.has_printed() && fold.take_printed().is_empty());
    }
}

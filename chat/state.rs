//! The state of the chat: a reducer of events. `input.rs` has its other half, the keys; `view.rs` draws it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use hermod_core::model::{CallId, RunId, SessionId};

use crate::{
    editor::Editor,
    event::{ChatEvent, Link, Question, Subagent, TodoLine, Tone, Used},
    look::Look,
    picker::Picker,
    transcript::{EntryBody, Transcript},
};

/// Runs whose spending is known one by one.
const MAX_RUNS: usize = 10_000;

/// A conversation as it is shown, and what its user writes.
#[derive(Debug, Default)]
pub struct ChatState {
    pub(crate) look: Look,
    pub(crate) link: Option<Link>,
    pub(crate) session: Option<SessionId>,
    pub(crate) title: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) workspace: String,
    pub(crate) transcript: Transcript,
    pub(crate) editor: Editor,
    /// Pictures of the next message: names and places.
    pub(crate) attached: Vec<(String, PathBuf)>,
    /// Messages that are not known to be in the conversation.
    pub(crate) pending: Vec<Pending>,
    pub(crate) next_local: u64,
    /// Runs without an end, the one under way first, and when each was accepted or reopened.
    pub(crate) open_runs: Vec<(RunId, u64)>,
    /// Messages to a run under way, and their entries.
    pub(crate) steered: BTreeMap<RunId, usize>,
    /// Runs that are being stopped.
    pub(crate) stopping: BTreeSet<RunId>,
    /// A model or a tool is at work, in words.
    pub(crate) activity: Option<String>,
    /// What the answers of a run say.
    pub(crate) answered: BTreeMap<RunId, Used>,
    /// What the service says that a run and its subagents have used.
    pub(crate) spent: BTreeMap<RunId, Used>,
    /// The tokens of the last request and its answer.
    pub(crate) context: Option<u64>,
    pub(crate) windows: BTreeMap<String, u64>,
    pub(crate) questions: Vec<AskedQuestion>,
    pub(crate) subagents: Vec<Subagent>,
    pub(crate) todo: Vec<TodoLine>,
    pub(crate) popup: Option<Popup>,
    /// What matters of the whole installation, until something is sent.
    pub(crate) overview: Option<String>,
    /// When Ctrl-C was pressed without anything to clear or to stop.
    pub(crate) quit_pressed_ms: Option<u64>,
    /// The columns and rows in which the conversation was drawn last.
    pub(crate) window: (usize, usize),
    is_changed: bool,
}

/// A message that was given to the service.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) local: u64,
    pub(crate) text: String,
    pub(crate) images: Vec<(String, PathBuf)>,
    /// Its id, once the service has it.
    pub(crate) message: Option<RunId>,
}

/// A question that is shown.
#[derive(Debug)]
pub(crate) struct AskedQuestion {
    pub(crate) question: Question,
    /// Since when it is seen, in milliseconds; keys before that are not meant for it.
    pub(crate) since_ms: u64,
    /// A run of a subagent asks.
    pub(crate) is_subagent: bool,
}

/// Texts to choose from, beside the input.
#[derive(Debug)]
pub(crate) enum Popup {
    /// Completions of the input from this byte on.
    Completions { start: usize, candidates: Vec<String>, chosen: usize },
    /// Conversations.
    Conversations(Picker),
}

impl ChatState {
    /// A chat without a conversation; tools work in the folder that `workspace` names.
    pub fn new(look: Look, workspace: String) -> Self {
        Self { look, workspace, is_changed: true, window: (80, 20), ..Self::default() }
    }

    /// True if something has changed since the last call.
    pub const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.is_changed, false)
    }

    /// Draws the state again.
    pub const fn mark_changed(&mut self) {
        self.is_changed = true;
    }

    /// True if something changes although nothing happens: the spinner moves, or a hint is over soon.
    pub const fn is_animated(&self) -> bool {
        !self.open_runs.is_empty() || self.quit_pressed_ms.is_some()
    }

    /// The run under way.
    pub fn active_run(&self) -> Option<RunId> {
        self.open_runs.first().map(|(run, _)| *run)
    }

    /// Messages that the service does not have yet.
    pub fn unsent(&self) -> impl Iterator<Item = &str> {
        self.pending.iter().filter(|pending| pending.message.is_none()).map(|pending| pending.text.as_str())
    }

    /// The conversation.
    pub const fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// The text that is being written.
    pub fn input_text(&self) -> &str {
        self.editor.text()
    }

    /// The last answer of the conversation.
    pub fn last_answer(&self) -> Option<&str> {
        self.transcript.last_answer()
    }

    /// Adds earlier inputs, the oldest first.
    pub fn remember(&mut self, inputs: impl IntoIterator<Item = String>) {
        inputs.into_iter().for_each(|input| self.editor.remember(&input));
    }

    /// Adds a line for the user.
    pub fn notice(&mut self, tone: Tone, text: impl Into<String>) {
        self.transcript.push(EntryBody::Notice(tone, text.into()));
        self.is_changed = true;
    }

    /// Folds an event, at a time in milliseconds since 1970 that never goes back.
    pub fn apply(&mut self, event: ChatEvent, now_ms: u64) {
        self.is_changed = true;
        let Some(event) = self.apply_to_conversation(event) else { return };
        let Some(event) = self.apply_to_calls(event, now_ms) else { return };
        self.apply_to_input(event);
    }

    /// Events about the conversation and its runs; returns any other.
    #[expect(clippy::wildcard_enum_match_arm, reason = "others are returned")]
    fn apply_to_conversation(&mut self, event: ChatEvent) -> Option<ChatEvent> {
        match event {
            ChatEvent::Link(link) => self.change_link(link),
            ChatEvent::Conversation(session) => self.open(session),
            ChatEvent::Named { title, agent } => {
                self.title = title.or(self.title.take());
                self.agent = agent.or(self.agent.take());
            }
            ChatEvent::Task { run, text, images, model, workspace, at_ms } => {
                self.confirm(run, &text);
                // A message that came too late to steer has become this run.
                if let Some(entry) = self.steered.remove(&run) {
                    self.transcript.erase(entry);
                }
                (self.model, self.workspace) = (Some(model), workspace);
                self.open_runs.push((run, at_ms));
                self.transcript.push(EntryBody::User { text, images, is_steer: false });
            }
            ChatEvent::Steered { message, text } => {
                self.confirm(message, &text);
                let entry = self.transcript.push(EntryBody::User { text, images: 0, is_steer: true });
                self.steered.insert(message, entry);
                if self.steered.len() > MAX_RUNS {
                    self.steered.pop_first();
                }
            }
            ChatEvent::Begun { run, at_ms } => {
                if !self.open_runs.iter().any(|(open, _)| *open == run) {
                    self.open_runs.push((run, at_ms));
                }
            }
            ChatEvent::RunEnded { run, is_completed, outcome } => self.end_run(run, is_completed, outcome),
            ChatEvent::Spent { run, used } => {
                self.spent.insert(run, used);
                if self.spent.len() > MAX_RUNS {
                    self.spent.pop_first();
                }
            }
            ChatEvent::Window { model, tokens } => drop(self.windows.insert(model, tokens)),
            ChatEvent::Tree(subagents) => self.subagents = subagents,
            ChatEvent::Todo(todo) => self.todo = todo,
            other => return Some(other),
        }
        None
    }

    /// Events about calls and questions; returns any other.
    #[expect(clippy::wildcard_enum_match_arm, reason = "others are returned")]
    fn apply_to_calls(&mut self, event: ChatEvent, now_ms: u64) -> Option<ChatEvent> {
        match event {
            ChatEvent::Asked { model, .. } => {
                self.activity = Some(format!("{model} thinks"));
                self.model = Some(model);
            }
            ChatEvent::Text { call, attempt, delta } => {
                self.activity = self.model.as_ref().map(|model| format!("{model} writes"));
                self.transcript.stream_text((call, attempt), &delta);
            }
            ChatEvent::Reasoning { call, attempt, delta } => {
                self.transcript.stream_thoughts((call, attempt), &delta);
            }
            ChatEvent::Voided { call } => self.transcript.void(call),
            ChatEvent::Answered { call, text, reasoning, is_discarded, usage } => {
                let answered = self.answered.entry(call.run).or_default();
                *answered = answered.plus(usage);
                if self.answered.len() > MAX_RUNS {
                    self.answered.pop_first();
                }
                self.context =
                    (usage.input > 0).then_some(usage.input.saturating_add(usage.output)).or(self.context);
                self.activity = None;
                if is_discarded {
                    self.transcript.void(call);
                } else {
                    self.transcript.answer(call, &text, &reasoning);
                }
            }
            ChatEvent::Call { call, tool, arguments } => self.transcript.call(call, tool, arguments),
            ChatEvent::Started { call, at_ms } => {
                self.transcript.change_tool(call, |tool| tool.start(at_ms));
                self.activity = self.transcript.tool(call).map(|tool| tool.label(60));
            }
            ChatEvent::Progress { call, note } => self.transcript.change_tool(call, |tool| tool.print(&note)),
            ChatEvent::Ended { call, end, content, at_ms } => {
                self.transcript.change_tool(call, |tool| tool.finish(end, &content, at_ms));
                self.questions.retain(|asked| asked.question.call != call);
                self.activity = None;
            }
            ChatEvent::Question(question) => self.ask(question, false, now_ms),
            ChatEvent::Decided { call, answer } => self.decided(call, answer),
            ChatEvent::SubagentQuestions(questions) => {
                self.questions.retain(|asked| {
                    !asked.is_subagent || questions.iter().any(|q| q.call == asked.question.call)
                });
                questions.into_iter().for_each(|question| self.ask(question, true, now_ms));
            }
            other => return Some(other),
        }
        None
    }

    /// Events about what the user writes and reads beside the conversation.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are applied before")]
    fn apply_to_input(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Sent { local, message } => {
                for pending in self.pending.iter_mut().filter(|pending| pending.local == local) {
                    pending.message = Some(message);
                }
            }
            ChatEvent::NotSent { local, reason } => {
                if let Some(at) = self.pending.iter().position(|pending| pending.local == local) {
                    let pending = self.pending.remove(at);
                    if self.editor.is_empty() {
                        self.editor.set(pending.text);
                        self.attached = pending.images;
                    }
                }
                self.notice(Tone::Bad, format!("not sent: {reason}"));
            }
            ChatEvent::Notice(tone, text) => self.notice(tone, text),
            ChatEvent::Overview(text) => self.overview = Some(text),
            ChatEvent::Page { title, text, kind } => {
                self.transcript.push(EntryBody::Page { title, text, kind });
                self.transcript.go_to_end();
            }
            ChatEvent::Choices { choices, .. } if choices.is_empty() => {
                self.notice(Tone::Quiet, "there is no other conversation yet");
            }
            ChatEvent::Choices { choices, is_cut } => {
                self.popup = Some(Popup::Conversations(Picker::new(choices, is_cut)));
            }
            ChatEvent::Completions { start, candidates } => self.offer(start, candidates),
            ChatEvent::Input(text) => self.editor.set(text),
            ChatEvent::Attached { name, path } => self.attached.push((name, path)),
            _ => {}
        }
    }

    fn change_link(&mut self, link: Link) {
        match (&self.link, &link) {
            (Some(Link::Lost(_)), Link::Up(_)) => self.notice(Tone::Quiet, "connected again"),
            (before, Link::Lost(reason)) if !matches!(before, Some(Link::Lost(_))) => {
                self.notice(
                    Tone::Action,
                    format!("{reason}: what runs is on disk, and goes on with the next one"),
                );
            }
            _ => {}
        }
        self.link = Some(link);
    }

    /// Shows another conversation; what is being written stays.
    fn open(&mut self, session: Option<SessionId>) {
        self.session = session;
        self.transcript.clear();
        self.open_runs.clear();
        self.questions.clear();
        self.subagents.clear();
        self.todo.clear();
        self.stopping.clear();
        self.steered.clear();
        self.spent.clear();
        if session.is_none() {
            self.pending.clear();
        }
        (self.title, self.agent, self.context, self.activity, self.popup) = (None, None, None, None, None);
        self.answered.clear();
    }

    /// A message is in the conversation.
    fn confirm(&mut self, message: RunId, text: &str) {
        let by_id = self.pending.iter().position(|pending| pending.message == Some(message));
        let by_text =
            || self.pending.iter().position(|pending| pending.message.is_none() && pending.text == text);
        if let Some(at) = by_id.or_else(by_text) {
            self.pending.remove(at);
        }
    }

    fn ask(&mut self, question: Question, is_subagent: bool, now_ms: u64) {
        if !self.questions.iter().any(|asked| asked.question.call == question.call) {
            self.questions.push(AskedQuestion { question, since_ms: now_ms, is_subagent });
        }
    }

    /// A question was answered: the answer stands with its call.
    fn decided(&mut self, call: CallId, answer: String) {
        let is_text = |asked: &AskedQuestion| asked.question.call == call && asked.question.wants_text;
        let wanted_text = self.questions.iter().any(is_text);
        self.questions.retain(|asked| asked.question.call != call);
        match self.transcript.tool(call) {
            // A text is seen as the result of its call.
            _ if wanted_text => {}
            Some(_) => self.transcript.change_tool(call, |tool| tool.decide(answer)),
            None => self.notice(Tone::Quiet, answer),
        }
    }

    fn end_run(&mut self, run: RunId, is_completed: bool, outcome: String) {
        self.open_runs.retain(|(open, _)| *open != run);
        self.questions.retain(|asked| asked.question.call.run != run);
        self.stopping.remove(&run);
        self.transcript.close_calls(run);
        self.activity = None;
        if self.open_runs.is_empty() {
            self.subagents.clear();
            self.questions.clear();
        }
        if !is_completed {
            self.notice(Tone::Bad, outcome);
        }
    }

    /// Shows completions; a single one is taken.
    fn offer(&mut self, start: usize, mut candidates: Vec<String>) {
        match (candidates.pop(), candidates.len()) {
            (None, _) => self.popup = None,
            (Some(only), 0) => {
                self.editor.complete(start, &only);
                self.popup = None;
            }
            (Some(last), _) => {
                candidates.push(last);
                self.popup = Some(Popup::Completions { start, candidates, chosen: 0 });
            }
        }
    }

    /// Tokens and money of the conversation: as the service counts them, else as the answers say.
    pub(crate) fn totals(&self) -> Used {
        let runs: BTreeSet<&RunId> = self.answered.keys().chain(self.spent.keys()).collect();
        let used = |run: &RunId| {
            let [answered, spent] =
                [&self.answered, &self.spent].map(|of| of.get(run).copied().unwrap_or_default());
            answered.max(spent)
        };
        runs.into_iter().fold(Used::default(), |total, run| total.plus(used(run)))
    }

    /// The question that is asked now.
    pub(crate) fn question(&self) -> Option<&AskedQuestion> {
        self.questions.first()
    }

    /// The call that a question is about, unless the question tells it.
    pub(crate) fn question_label(&self, question: &Question) -> Option<String> {
        let label = self.transcript.tool(question.call)?.label(400);
        label_beside(question, label)
    }
}

/// The label of a call, unless the question about it tells what the call does.
pub(crate) fn label_beside(question: &Question, label: String) -> Option<String> {
    let detail = label.split_once(' ').map_or("", |(_, detail)| detail);
    (!question.wants_text && !question.text.contains(detail)).then_some(label)
}

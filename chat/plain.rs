//! The plain mode: every event as lines of words, in their order, without colours and without cursor movement. For screen
//! readers, for terminals that can do no more, and for pipes.

use std::collections::{BTreeMap, VecDeque};

use hermod_core::model::{CallId, RunId};

use crate::{
    command::{self, Command, Denial, help_text},
    event::{CallOutcome, ChatEvent, Intent, Link, Question, Tone},
    look::Look,
    state::label_beside,
    tool_entry::ToolEntry,
    wrap::clean,
};

/// Columns after which outputs of tools are broken.
const COLUMNS: usize = 200;
/// Own messages whose echo is left out.
const MAX_SENT: usize = 100;
/// Conversations that are listed.
const MAX_CHOICES: usize = 50;
/// Calls that are remembered until they end.
const MAX_CALLS: usize = 1_000;

/// A chat in plain mode: events in, lines out; lines of the user in, intents out.
#[derive(Debug, Default)]
pub struct PlainChat {
    open_runs: Vec<RunId>,
    questions: Vec<Question>,
    calls: BTreeMap<CallId, ToolEntry>,
    sent: VecDeque<String>,
    next_local: u64,
    /// The answer that streams: its call, and what is not printed yet of its last line.
    answer: Option<(CallId, String)>,
    /// Messages that are not known to be in the conversation.
    unconfirmed: usize,
}

impl PlainChat {
    /// True if a run is under way, or a message is on its way.
    pub const fn is_busy(&self) -> bool {
        !self.open_runs.is_empty() || self.unconfirmed > 0
    }

    /// True if a person is asked.
    pub const fn is_asking(&self) -> bool {
        !self.questions.is_empty()
    }

    /// The run under way.
    pub fn active_run(&self) -> Option<RunId> {
        self.open_runs.first().copied()
    }

    /// The text to print for an event.
    pub fn apply(&mut self, event: ChatEvent) -> String {
        let mut to = String::new();
        if let Some(event) = self.apply_to_run(event, &mut to) {
            self.apply_to_call(event, &mut to);
        }
        to
    }

    /// Events about runs and messages; returns any other.
    #[expect(clippy::wildcard_enum_match_arm, reason = "others are returned")]
    fn apply_to_run(&mut self, event: ChatEvent, to: &mut String) -> Option<ChatEvent> {
        match event {
            ChatEvent::Conversation(session) => {
                // Messages that are on their way belong to the session that they open.
                let unconfirmed = if session.is_some() { self.unconfirmed } else { 0 };
                let (sent, next_local) = (std::mem::take(&mut self.sent), self.next_local);
                *self = Self { sent, next_local, unconfirmed, ..Self::default() };
            }
            ChatEvent::Link(Link::Lost(reason)) => {
                push(to, "service", &format!("{reason}; it is waited for"));
            }
            ChatEvent::Task { run, text, .. } => {
                self.open_runs.push(run);
                self.echo(&text, "you", to);
            }
            ChatEvent::Steered { text, .. } => self.echo(&text, "you, meanwhile", to),
            ChatEvent::Begun { run, .. } => self.open_runs.push(run),
            ChatEvent::RunEnded { run, is_completed, outcome } => {
                self.open_runs.retain(|open| *open != run);
                self.questions.retain(|question| question.call.run != run);
                self.calls.retain(|call, _| call.run != run);
                push(to, if is_completed { "done" } else { "ended" }, &outcome);
            }
            ChatEvent::NotSent { reason, .. } => {
                self.unconfirmed = self.unconfirmed.saturating_sub(1);
                push(to, "not sent", &reason);
            }
            ChatEvent::Named { title: Some(title), .. } => push(to, "title", &title),
            ChatEvent::Notice(Tone::Quiet, text) => push(to, "note", &text),
            ChatEvent::Overview(text) => push(to, "overview", &text),
            ChatEvent::Notice(Tone::Bad, text) => push(to, "failure", &text),
            ChatEvent::Notice(Tone::Action, text) => push(to, "attention", &text),
            ChatEvent::Page { title, text, .. } => push(to, &title, &format!("\n{}", text.trim_end())),
            ChatEvent::Choices { choices, is_cut } => {
                for choice in choices.iter().take(MAX_CHOICES) {
                    push(to, "conversation", &choice.label);
                }
                if is_cut || choices.len() > MAX_CHOICES {
                    push(to, "note", "there are more: `hermod sessions list`");
                }
                push(to, "choose", "/resume ID");
            }
            ChatEvent::Attached { name, .. } => push(to, "attached", &name),
            other => return Some(other),
        }
        None
    }

    /// Events about calls and questions; others say nothing here.
    #[expect(clippy::wildcard_enum_match_arm, reason = "others say nothing in plain mode")]
    fn apply_to_call(&mut self, event: ChatEvent, to: &mut String) {
        match event {
            ChatEvent::Text { call, delta, .. } => self.stream(call, &delta, to),
            ChatEvent::Voided { call } => {
                let voided = self.answer.take_if(|(streaming, _)| *streaming == call);
                voided.iter().for_each(|_| push(to, "note", "this answer is void, and is asked for again"));
            }
            ChatEvent::Answered { call, text, is_discarded, .. } if !is_discarded => match self.answer.take()
            {
                Some((streaming, rest)) if streaming == call => push_lines(to, &rest),
                _ if text.trim().is_empty() => {}
                _ => {
                    push(to, "answer", "");
                    push_lines(to, &text);
                }
            },
            ChatEvent::Call { call, tool, arguments } => {
                self.calls.insert(call, ToolEntry::new(tool, arguments));
                if self.calls.len() > MAX_CALLS {
                    self.calls.pop_first();
                }
            }
            ChatEvent::Started { call, at_ms } => {
                if let Some(tool) = self.calls.get_mut(&call) {
                    tool.start(at_ms);
                    push(to, "tool", &tool.label(COLUMNS));
                }
            }
            ChatEvent::Ended { call, end, content, at_ms } => self.end_call(call, (end, &content, at_ms), to),
            ChatEvent::Question(question) => self.ask(question, to),
            ChatEvent::SubagentQuestions(questions) => {
                questions.into_iter().for_each(|question| self.ask(question, to));
            }
            ChatEvent::Decided { call, answer } => {
                let is_text = |question: &Question| question.call == call && question.wants_text;
                let wanted_text = self.questions.iter().any(is_text);
                self.questions.retain(|question| question.call != call);
                if !wanted_text {
                    push(to, "decided", &answer);
                }
            }
            _ => {}
        }
    }

    /// What the user said, unless this chat has sent it.
    fn echo(&mut self, text: &str, who: &str, to: &mut String) {
        match self.sent.iter().position(|sent| sent == text) {
            Some(at) => {
                self.sent.remove(at);
                self.unconfirmed = self.unconfirmed.saturating_sub(1);
            }
            None => push(to, who, text),
        }
    }

    /// Prints the whole lines of an answer that streams.
    fn stream(&mut self, call: CallId, delta: &str, to: &mut String) {
        if self.answer.as_ref().is_none_or(|(streaming, _)| *streaming != call) {
            if delta.trim().is_empty() {
                return;
            }
            push(to, "answer", "");
            self.answer = Some((call, String::new()));
        }
        let Some((_, rest)) = &mut self.answer else { return };
        rest.push_str(delta);
        if let Some(end) = rest.rfind('\n') {
            let lines: String = rest.drain(..=end).collect();
            push_lines(to, &lines);
        }
    }

    fn end_call(&mut self, call: CallId, (end, content, at_ms): (CallOutcome, &str, u64), to: &mut String) {
        self.questions.retain(|question| question.call != call);
        let Some(mut tool) = self.calls.remove(&call) else { return };
        tool.finish(end, content, at_ms);
        let lines = tool.lines((COLUMNS, false), Look { has_colours: false, is_unicode: false });
        let mut lines = lines.iter().map(|line| line.to_string().trim_end().to_owned());
        push(to, "result", lines.next().unwrap_or_default().trim_start_matches("* "));
        for line in lines {
            to.push_str(&line);
            to.push('\n');
        }
    }

    fn ask(&mut self, question: Question, to: &mut String) {
        if self.questions.iter().any(|asked| asked.call == question.call) {
            return;
        }
        push(to, "question", &question.text);
        let label = self.calls.get(&question.call).map(|call| call.label(COLUMNS));
        if let Some(label) = label.and_then(|label| label_beside(&question, label)) {
            push(to, "call", &label);
        }
        let answers = match (question.wants_text, question.can_always) {
            (true, _) => "write the answer",
            (false, true) => "write allow, run, always or deny",
            (false, false) => "write allow, run or deny",
        };
        push(to, "answer it", answers);
        self.questions.push(question);
    }

    /// What the user wants by a line, and the text to print for it.
    pub fn line(&mut self, line: &str) -> (Vec<Intent>, String) {
        let mut to = String::new();
        let line = line.trim_end();
        if line.trim().is_empty() {
            return (Vec::new(), to);
        }
        let intents = match Command::parse(line) {
            Some(Ok(command)) => self.command(command, &mut to),
            Some(Err(error)) => {
                push(&mut to, "failure", &error);
                Vec::new()
            }
            None if self.is_asking() => {
                intent_or_error(command::answer(self.questions.first(), line), &mut to)
            }
            None => vec![self.send(line)],
        };
        (intents, to)
    }

    fn send(&mut self, text: &str) -> Intent {
        let local = self.next_local;
        self.next_local += 1;
        self.unconfirmed += 1;
        self.sent.push_back(text.to_owned());
        if self.sent.len() > MAX_SENT {
            self.sent.pop_front();
        }
        Intent::Send { local, text: text.to_owned(), images: Vec::new() }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the adapter carries out all others")]
    fn command(&mut self, command: Command, to: &mut String) -> Vec<Intent> {
        match command {
            Command::Help => {
                push(to, "commands", &format!("\n{}", help_text().trim_end().replace('\t', ": ")));
            }
            Command::Quit => return vec![Intent::Quit],
            Command::Stop => match self.active_run() {
                Some(run) => return vec![Intent::Interrupt(run)],
                None => push(to, "note", "nothing runs"),
            },
            Command::Approve(words) => {
                return intent_or_error(command::answer(self.questions.first(), &words), to);
            }
            Command::Deny(words) => {
                return match command::denial(self.questions.first(), self.active_run(), words) {
                    Ok(Denial::Intent(intent)) => vec![intent],
                    Ok(Denial::Message(reason)) => vec![self.send(&reason)],
                    Err(error) => intent_or_error(Err(error), to),
                };
            }
            Command::Resume(Some(id)) => return vec![Intent::Open(id)],
            other => return vec![Intent::Command(other)],
        }
        Vec::new()
    }
}

fn intent_or_error(intent: Result<Intent, String>, to: &mut String) -> Vec<Intent> {
    match intent {
        Ok(intent) => vec![intent],
        Err(error) => {
            push(to, "failure", &error);
            Vec::new()
        }
    }
}

/// Appends a text behind the word that says what it is.
fn push(to: &mut String, word: &str, text: &str) {
    to.push_str(&clean(word));
    to.push(':');
    if !text.is_empty() && !text.starts_with('\n') {
        to.push(' ');
    }
    to.push_str(&clean(text));
    to.push('\n');
}

fn push_lines(to: &mut String, text: &str) {
    if !text.is_empty() {
        to.push_str(clean(text).trim_end_matches('\n'));
        to.push('\n');
    }
}

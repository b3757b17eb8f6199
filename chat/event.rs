//! What the chat is told, and what its user wants: the only words between the face and the adapter that speaks with the
//! service. `records.rs` makes events of the records of a session.

use hermod_core::model::{Attempt, CallId, RunId, SessionId};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatEvent {
    /// The connection to the service changed.
    Link(Link),
    /// Another conversation is shown from its beginning; `None` is a new one, which has no session yet.
    Conversation(Option<SessionId>),
    /// The conversation's title or agent became known.
    Named {
        /// The title.
        title: Option<String>,
        /// The agent.
        agent: Option<String>,
    },
    /// A run was accepted with what the user said.
    Task {
        /// The run.
        run: RunId,
        /// The text.
        text: String,
        /// The number of pictures.
        images: usize,
        /// The first model of its chain.
        model: String,
        /// The folder of its tools.
        workspace: String,
        /// When it was accepted, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The user wrote while a run was under way.
    Steered {
        /// The message.
        message: RunId,
        /// The text.
        text: String,
    },
    /// A run begins or goes on.
    Begun {
        /// The run.
        run: RunId,
        /// The time, in milliseconds since 1970.
        at_ms: u64,
    },
    /// An attempt of a model call started.
    Asked {
        /// The call.
        call: CallId,
        /// The model.
        model: String,
    },
    /// A piece of an answer.
    Text {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The piece.
        delta: String,
    },
    /// A piece of what a model thinks.
    Reasoning {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The piece.
        delta: String,
    },
    /// What streamed of the call's earlier attempts is void.
    Voided {
        /// The call.
        call: CallId,
    },
    /// The model answered; the answer is durable.
    Answered {
        /// The call.
        call: CallId,
        /// The whole text.
        text: String,
        /// All that it thought.
        reasoning: String,
        /// The answer is not used; the model is asked again.
        is_discarded: bool,
        /// What it used.
        usage: Used,
    },
    /// A tool is called.
    Call {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// The arguments, as JSON.
        arguments: String,
    },
    /// An attempt of a tool call started, at this active time of the session in milliseconds.
    Started {
        /// The call.
        call: CallId,
        /// The time.
        at_ms: u64,
    },
    /// The last lines that a tool printed.
    Progress {
        /// The call.
        call: CallId,
        /// The lines.
        note: String,
    },
    /// A tool call has its result, at this active time of the session in milliseconds.
    Ended {
        /// The call.
        call: CallId,
        /// How it ended.
        end: CallOutcome,
        /// The result, as the model reads it.
        content: String,
        /// The time.
        at_ms: u64,
    },
    /// A person is asked.
    Question(Question),
    /// A question has its answer, in words.
    Decided {
        /// The call.
        call: CallId,
        /// The answer.
        answer: String,
    },
    /// The questions of subagents, all that are open now.
    SubagentQuestions(Vec<Question>),
    /// The subagents of the run under way.
    Tree(Vec<Subagent>),
    /// The todo list, with what is done.
    Todo(Vec<TodoLine>),
    /// A run has its outcome.
    RunEnded {
        /// The run.
        run: RunId,
        /// It completed.
        is_completed: bool,
        /// The outcome in words.
        outcome: String,
    },
    /// What a run and its subagents have used, as the service counts it.
    Spent {
        /// The run.
        run: RunId,
        /// Tokens and money.
        used: Used,
    },
    /// The tokens that fit into a model's context.
    Window {
        /// The model.
        model: String,
        /// The tokens.
        tokens: u64,
    },
    /// A message is durable.
    Sent {
        /// Its number, as in [`Intent::Send`].
        local: u64,
        /// The message.
        message: RunId,
    },
    /// A message was not sent; its text goes back to the input.
    NotSent {
        /// Its number, as in [`Intent::Send`].
        local: u64,
        /// Why.
        reason: String,
    },
    /// A line for the user.
    Notice(Tone, String),
    /// What matters of the whole installation, in a line; it is shown until something is sent.
    Overview(String),
    /// A longer text for the user, such as a diff or a list.
    Page {
        /// Its first line.
        title: String,
        /// The text.
        text: String,
        /// What it is.
        kind: PageKind,
    },
    /// Conversations to choose from.
    Choices {
        /// The conversations, the one with the latest run first.
        choices: Vec<Choice>,
        /// There are more.
        is_cut: bool,
    },
    /// What completes the input; `start` is where the completed part begins.
    Completions {
        /// The byte of the input.
        start: usize,
        /// The texts.
        candidates: Vec<String>,
    },
    /// The text comes back from the editor, or another text replaces the input.
    Input(String),
    /// A picture is attached to the next message.
    Attached {
        /// Its name.
        name: String,
        /// Its place.
        path: std::path::PathBuf,
    },
}

/// The connection to the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// None yet.
    Connecting,
    /// The process with this id answers.
    Up(u32),
    /// It ended; another one is waited for.
    Lost(String),
}

/// Tokens and money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Nano-dollars.
    pub nano_usd: u64,
}

impl Used {
    /// The sums of tokens and of money.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
        }
    }

    /// The larger counts of both.
    #[must_use]
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            nano_usd: self.nano_usd.max(other.nano_usd),
        }
    }
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// With a result.
    Ok,
    /// With an error.
    Failed,
    /// It was stopped.
    Stopped,
    /// It was not started.
    NotStarted,
    /// Nothing can tell whether it was carried out.
    InDoubt,
}

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The call that waits for the answer.
    pub call: CallId,
    /// The question.
    pub text: String,
    /// The answer is a text, not a decision.
    pub wants_text: bool,
    /// Such calls can be allowed for always.
    pub can_always: bool,
}

/// A line of the tree of subagents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subagent {
    /// Its depth below the run, from 0.
    pub depth: usize,
    /// The end of its run's id.
    pub id: String,
    /// Its task.
    pub task: String,
    /// Its state in a word.
    pub state: String,
    /// It has ended.
    pub has_ended: bool,
    /// Tokens it has used.
    pub tokens: u64,
}

/// A line of the todo list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TodoLine {
    /// What is to be done.
    pub text: String,
    /// It is done, or given up.
    pub is_done: bool,
    /// It is being done.
    pub is_active: bool,
}

/// The tone of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Something to know.
    Quiet,
    /// A failure.
    Bad,
    /// A person has to act.
    Action,
}

/// What a longer text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Lines as they are.
    Plain,
    /// Lines that are cut, not broken.
    Table,
    /// Lines of a term, a tab and its meaning.
    Terms,
    /// A diff.
    Diff,
}

/// A conversation to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its id, which chooses it.
    pub id: String,
    /// What is shown of it.
    pub label: String,
    /// What else it can be found by.
    pub text: String,
}

/// What the user wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// A message is sent; while a run is under way it steers that.
    Send {
        /// The number of the message in this chat.
        local: u64,
        /// The text.
        text: String,
        /// Pictures that belong to it.
        images: Vec<std::path::PathBuf>,
    },
    /// The run is stopped.
    Interrupt(RunId),
    /// A question of the conversation is answered.
    Decide(CallId, Verdict),
    /// A question of any conversation is answered: that of the call with this id, or of the run with this id. The ids may be
    /// shortened to their ends.
    DecideNamed(String, Verdict),
    /// A slash command that needs the service or files.
    Command(crate::command::Command),
    /// The input is edited in the user's editor.
    EditInput(String),
    /// The clipboard's picture is attached.
    PastePicture,
    /// The path that ends at the cursor is completed; it begins at this byte of the input.
    CompletePath {
        /// The byte of the input.
        start: usize,
        /// The path so far.
        path: String,
    },
    /// Another conversation is shown.
    Open(String),
    /// The screen is drawn anew.
    Redraw,
    /// The process is stopped until the shell lets it go on.
    Suspend,
    /// The chat ends; what runs goes on.
    Quit,
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call may be made.
    Allow(AllowScope),
    /// The call is not made.
    Deny,
    /// The answer to a question of the model.
    Text(String),
}

/// For which calls an allowance holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowScope {
    /// This call.
    Once,
    /// Such calls of this run.
    Run,
    /// Such calls of every run.
    Always,
}

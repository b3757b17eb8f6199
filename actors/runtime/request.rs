//! The types of the public API for submissions: dependencies, defaults, requests, results, and errors.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    model::{
        Amounts, BootId, BreakerPolicy, CallId, Expectation, Hash, IdError, Message, ModelRef, OccurrenceId,
        OutcomeDetail, Queueing, RunId, RunSpec, SessionId, ThinkingLevel, Timestamp, Usage,
    },
    policy::FinalText,
    port::{
        Artifacts, CallPolicy, Clock, DecisionHooks, DiskSpaceGauge, FixedPrompt, Journal, ModelProvider,
        PictureScaler, ReadError, SystemPromptBuilder, TextRedactor, Tool,
    },
    runtime::repeat::KeyConflict,
    session::SubmitError,
    supervisor::RuntimeEnd,
    turn::RaiseError,
};

/// The dependencies of a runtime.
#[derive(Debug)]
pub struct RuntimeDependencies {
    /// The store.
    pub journal: Arc<dyn Journal>,
    /// The clock and the source of random numbers.
    pub clock: Arc<dyn Clock>,
    /// The boot id of the machine.
    pub boot: BootId,
    /// The endpoints by name; `usize` bounds the concurrent calls of each.
    pub providers: Vec<(Arc<str>, Arc<dyn ModelProvider>, usize)>,
    /// Thresholds and cooldowns of the circuit breakers.
    pub breakers: BreakerPolicy,
    /// The tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Judges each tool call before its admission.
    pub policy: Arc<dyn CallPolicy>,
    /// Hooks that decide about calls.
    pub hooks: Arc<dyn DecisionHooks>,
    /// Most concurrent tool calls of each class ([`ToolClass`](crate::model::ToolClass)), at least 1.
    pub tool_calls: usize,
    /// Most concurrent summary calls, at least 1.
    pub summaries: usize,
    /// Most submissions that wait until they are durable; more are refused as overloaded.
    pub submissions: usize,
    /// How long an idle session stays in memory.
    pub idle: Duration,
    /// Reports low disk space, which refuses submissions; without a gauge none is refused for it.
    pub space: Option<Arc<dyn DiskSpaceGauge>>,
    /// The store of outputs that are too long for the model.
    pub artifacts: Arc<dyn Artifacts>,
    /// Scales the pictures of submissions.
    pub pictures: Arc<dyn PictureScaler>,
    /// Hides secrets in all texts from outside before they are recorded or shown.
    pub redactor: Arc<dyn TextRedactor>,
    /// Defaults for what a request leaves out.
    pub defaults: Defaults,
}

/// Defaults for what a request leaves out.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// The spec of a run.
    pub spec: RunSpec,
    /// The builder of the system prompt of a new session.
    pub prompt: Arc<dyn SystemPromptBuilder>,
}

impl Defaults {
    /// Defaults with the same system prompt for every session.
    pub fn fixed(spec: RunSpec, prompt: impl Into<Arc<str>>) -> Self {
        Self { spec, prompt: Arc::new(FixedPrompt(prompt.into())) }
    }
}

/// A task for the runtime. Absent fields are generated, built or taken from the defaults.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// The user's message, not empty.
    pub input: Arc<str>,
    /// Images of the task, each a complete PNG, JPEG, GIF or WebP file.
    pub images: Vec<Bytes>,
    /// The last layer of the system prompt, for this run only.
    pub system: Option<Arc<str>>,
    /// The conversation so far, repaired where it is not well formed; its system messages come before `system`. Refused
    /// by a session that has had a run.
    pub history: Vec<Message>,
    /// The isolation key of the run's tools; generated if absent. The text of the task is `input`.
    pub task: Option<Arc<str>>,
    /// The session of the run.
    pub session: SessionChoice,
    /// Limits of the run's budget account that differ from the spec's.
    pub budget: Amounts,
    /// Active time after which the run is `budget_exhausted`, if it differs from the spec's.
    pub wall: Option<Duration>,
    /// Active time after which the run is `timed_out`, if it differs from the spec's.
    pub timeout: Option<Duration>,
    /// The thinking level, if it differs from the spec's. Ignored for models without that control.
    pub thinking: Option<ThinkingLevel>,
    /// What must hold before the run completes, if it differs from the spec's.
    pub expects: Vec<Expectation>,
    /// The spec; the default if absent.
    pub spec: Option<RunSpec>,
    /// The system prompt of a new session; built by the default builder if absent.
    pub prompt: Option<Arc<str>>,
    /// The idempotency key, not blank: a repeat gets the first run, and another task is a [`RunError::KeyConflict`].
    pub idempotency_key: Option<Arc<str>>,
    /// The hash of the client's whole request. A repeat of its idempotency key with another hash is a
    /// [`RunError::KeyConflict`] too.
    pub request_hash: Option<Hash>,
    /// The occurrence of a schedule whose run this is: a repeat gets the first run, whatever its task. Neither an
    /// idempotency key nor `queueing` comes with it.
    pub occurrence: Option<OccurrenceId>,
    /// If the task is a message to its session: how it queues. It then becomes a run of its own, joins one, or is dropped;
    /// [`Runtime::message`](crate::Runtime::message) tells which.
    pub queueing: Option<Queueing>,
}

impl RunRequest {
    /// A task in a new session, with the defaults.
    pub fn new(input: impl Into<Arc<str>>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }
}

/// The session of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    /// A new session.
    #[default]
    New,
    /// The session with this key; a new one if there is none.
    Key(Arc<str>),
    /// The session with this id, which must exist.
    Id(SessionId),
}

/// The result of a run that has ended. Its JSON is for other processes of this program only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// The run.
    pub run: RunId,
    /// The run's session.
    pub session: SessionId,
    /// The isolation key of the run's tools; `None` if its records cannot be read.
    pub task: Option<String>,
    /// The outcome and its cause.
    pub ended: OutcomeDetail,
    /// The last text: the answer of a completed run; otherwise at most a part of one. `None` if the run is silent.
    pub answer: Option<FinalText>,
    /// Whether the run completed with the answer `NO_REPLY`: there is nothing to deliver.
    #[serde(default)]
    pub silent: bool,
    /// The run's messages as a model reads them, after the history of the request: its input, answers, results, and its
    /// end. Empty if its records cannot be read.
    pub messages: Vec<Message>,
    /// Number of legs: 1, and one more for each continuation with a larger budget.
    pub legs: u32,
    /// Number of iterations.
    pub iterations: u32,
    /// The usage of its model calls.
    pub usage: Usage,
    /// The cost of its model calls in nano-dollars: see [`Bill::nano_usd`](crate::Bill::nano_usd).
    pub cost: Option<u64>,
    /// The models with calls of unknown cost: see [`Bill::unpriced`](crate::Bill::unpriced).
    pub unpriced: Vec<ModelRef>,
    /// When the run was accepted.
    pub accepted_at: Timestamp,
    /// When the run started.
    pub started_at: Option<Timestamp>,
    /// When the run ended.
    pub ended_at: Option<Timestamp>,
}

impl RunResult {
    /// The last text, whatever its source.
    pub fn text(&self) -> Option<&str> {
        self.answer.as_ref().map(|answer| answer.text.as_str())
    }
}

/// An error of a request, or a run that did not complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A field of the request is invalid.
    #[error("{field}: {error}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// What is wrong with the field, and the remedy.
        error: String,
    },
    /// The session does not exist.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The run does not exist.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The run has ended or is being stopped: it takes no more messages.
    #[error("run {0} has ended or is about to; give its conversation a new task instead")]
    Ended(RunId),
    /// The call has no pending approval.
    #[error("call {0} has no pending approval; see `hermod approvals list`")]
    NoPendingApproval(CallId),
    /// The limits of the run are not raised.
    #[error("the budget of run {0} is not raised: {1}")]
    NotRaised(RunId, RaiseError),
    /// The idempotency key belongs to a run with another task. Nothing was recorded.
    #[error("idempotency_key {0}")]
    KeyConflict(Box<KeyConflict>),
    /// The idempotency key belongs to another message. Nothing was recorded.
    #[error(
        "idempotency_key `{key}` stands for message {message}, which another request sent; repeat that request as it was, or \
         give this one another key"
    )]
    MessageKeyConflict {
        /// The idempotency key.
        key: Arc<str>,
        /// The first message with this key.
        message: RunId,
    },
    /// The run was not accepted.
    #[error(transparent)]
    NotAccepted(#[from] SubmitError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The runtime has ended; the run resumes after its next start.
    #[error("the runtime has ended: {0}")]
    Terminated(RuntimeEnd),
    /// The limit of the wait is over; the run continues.
    #[error("run {0} has not ended yet")]
    WaitTimedOut(RunId),
    /// The run ended with an outcome other than `completed`.
    #[error("{}", .0.ended)]
    NotCompleted(Box<RunResult>),
}

impl From<IdError> for RunError {
    fn from(error: IdError) -> Self {
        Self::Invalid { field: "id", error: error.to_string() }
    }
}

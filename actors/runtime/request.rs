use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    model::{
        Amounts, BootId, BreakerPolicy, CallId, IdError, Message, ModelRef, OutcomeDetail, RunId, RunSpec,
        SessionId, ThinkingLevel, Timestamp, Usage,
    },
    policy::FinalText,
    port::{
        Artifacts, Clock, DiskSpaceGauge, FixedPrompt, Journal, ModelProvider, ReadError,
        SystemPromptBuilder, Tool,
    },
    runtime::repeat::KeyConflict,
    session::SubmitError,
    supervisor::RuntimeEnd,
    turn::RaiseError,
};

/// What the runtime is given of the world.
#[derive(Debug)]
pub struct RuntimeDependencies {
    /// The store.
    pub journal: Arc<dyn Journal>,
    /// The time, and chance.
    pub clock: Arc<dyn Clock>,
    /// The boot of the machine.
    pub boot: BootId,
    /// The endpoints by name, each with how many calls it may have at once.
    pub providers: Vec<(Arc<str>, Arc<dyn ModelProvider>, usize)>,
    /// For how long a model that fails is not asked.
    pub breakers: BreakerPolicy,
    /// The tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// How many tool calls may be under way at once.
    pub tool_calls: usize,
    /// How many submissions may wait until they are on disk; one more is refused as overloaded.
    pub submissions: usize,
    /// For how long a session with nothing to do is kept in memory.
    pub idle: Duration,
    /// Tells when there is too little room to accept more; without it there always is enough.
    pub space: Option<Arc<dyn DiskSpaceGauge>>,
    /// Where outputs are kept that are too long for the model.
    pub artifacts: Arc<dyn Artifacts>,
    /// What a request that does not say otherwise is run with.
    pub defaults: Defaults,
}

/// See [`RuntimeDependencies::defaults`].
#[derive(Debug, Clone)]
pub struct Defaults {
    /// The spec of a run.
    pub spec: RunSpec,
    /// What builds the system prompt of a new session.
    pub prompt: Arc<dyn SystemPromptBuilder>,
}

impl Defaults {
    /// With the same system prompt for every session.
    pub fn fixed(spec: RunSpec, prompt: impl Into<Arc<str>>) -> Self {
        Self { spec, prompt: Arc::new(FixedPrompt(prompt.into())) }
    }
}

/// A task for the runtime. What is left out is generated, built or taken from the defaults.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// What is to be done; not empty.
    pub input: Arc<str>,
    /// Pictures that belong to it, each a whole PNG, JPEG, GIF or WebP file.
    pub images: Vec<Bytes>,
    /// The last layer of the system prompt, for this run only.
    pub system: Option<Arc<str>>,
    /// The conversation so far, mended where it is not well formed; system messages in it come before `system`. Refused
    /// by a session that has had a run.
    pub history: Vec<Message>,
    /// The isolation key of the run's tools; one is made if absent.
    pub task: Option<Arc<str>>,
    /// In which conversation.
    pub session: SessionChoice,
    /// Limits of the run's account, where they differ from the spec's.
    pub budget: Amounts,
    /// Active time after which the run is `budget_exhausted`, if it differs from the spec's.
    pub wall: Option<Duration>,
    /// Active time after which the run is `timed_out`, if it differs from the spec's.
    pub timeout: Option<Duration>,
    /// How much the models are to think, if it differs from the spec's. Who cannot be told is not told.
    pub thinking: Option<ThinkingLevel>,
    /// With what else; the defaults if absent.
    pub spec: Option<RunSpec>,
    /// The system prompt, if the session is new; what the default builds if absent.
    pub prompt: Option<Arc<str>>,
    /// A name for this very task, not blank: a repeat gets the first run, and another task is a [`RunError::KeyConflict`].
    pub idempotency_key: Option<Arc<str>>,
}

impl RunRequest {
    /// A task in a conversation of its own, with the defaults.
    pub fn new(input: impl Into<Arc<str>>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }
}

/// Which session a run belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    /// A new one.
    #[default]
    New,
    /// The one with the key; a new one if there is none.
    Key(Arc<str>),
    /// The one with the id, which must exist.
    Id(SessionId),
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// The isolation key of its tools; `None` if its records cannot be read.
    pub task: Option<String>,
    /// How it ended.
    pub ended: OutcomeDetail,
    /// What was said last: the answer of a completed run; of another, at most a part of one.
    pub answer: Option<FinalText>,
    /// The run's messages as a model reads them, behind the history that came with it: its input, answers and results,
    /// and its end. Empty if its records cannot be read.
    pub messages: Vec<Message>,
    /// How many legs it had: one more than the times it went on with more budget.
    pub legs: u32,
    /// The iterations it took.
    pub iterations: u32,
    /// What its model calls used.
    pub usage: Usage,
    /// What they cost, in nano-dollars; `None` if that is not known of all of them.
    pub cost: Option<u64>,
    /// The models whose part of the cost is not known: see [`Bill::unpriced`](crate::Bill::unpriced).
    pub unpriced: Vec<ModelRef>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl RunResult {
    /// What was said last, whatever it is.
    pub fn text(&self) -> Option<&str> {
        self.answer.as_ref().map(|said| said.text.as_str())
    }
}

/// A run that did not complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The request cannot be taken as it is.
    #[error("{field}: {error}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// What is wrong with it, and the remedy.
        error: String,
    },
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The run hears nothing any more.
    #[error("run {0} has ended or is about to; give its conversation a new task instead")]
    Ended(RunId),
    /// There is nothing to decide about the call.
    #[error("nobody is asked about call {0} (any more); see `hermod approvals list`")]
    NoPendingApproval(CallId),
    /// Its limits are not raised.
    #[error("the budget of run {0} is not raised: {1}")]
    NotRaised(RunId, RaiseError),
    /// The idempotency key stands for a run with another task. Nothing was done.
    #[error("idempotency_key {0}")]
    KeyConflict(Box<KeyConflict>),
    /// It was not accepted.
    #[error(transparent)]
    NotAccepted(SubmitError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The runtime has ended; the run goes on when it is started again.
    #[error("the runtime has ended: {0}")]
    Terminated(RuntimeEnd),
    /// The time given to wait is over; the run goes on.
    #[error("run {0} has not ended yet")]
    WaitTimedOut(RunId),
    /// It ended in another way than by completing.
    #[error("{}", .0.ended)]
    NotCompleted(Box<RunResult>),
}

impl From<IdError> for RunError {
    fn from(error: IdError) -> Self {
        Self::Invalid { field: "id", error: error.to_string() }
    }
}

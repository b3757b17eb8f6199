//! Submissions of other processes: the task as it crosses the socket, the answer, and the trait by which the owner takes
//! them. `host/handover/` implements and uses both sides.

use std::{fmt::Debug, path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use hermod_actors::model::{
    Amounts, Expectation, Hash, Message, RunId, ScheduleDefinition, Seq, SessionId, ThinkingLevel, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{error::RequestError, messages::MessageSubmission};
use crate::view::AgentView;

/// A task for the owner's runtime. The owner resolves its spec by its own configuration: neither a key nor a variable nor
/// a spec is in it. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSubmission {
    /// The text.
    pub text: Arc<str>,
    /// The images in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// The conversation before a new one's first run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// The isolation key of the run's tools; absent generates one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation_key: Option<Arc<str>>,
    /// The conversation.
    #[serde(default)]
    pub conversation: SubmissionConversation,
    /// The agent; absent takes the conversation's, for a new one `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The hash of a script in the state directory: the run is its rehearsal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Hash>,
    /// The provider of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model; absent takes the conversation's or the owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The folder in which the tools work; absent takes the conversation's, else `folder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// The client's current folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Limits of the budget; `usd` in nano-dollars.
    #[serde(default)]
    pub budget: Amounts,
    /// Limit of active time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Time after which the run ends as timed out, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How much the models are to think.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// A system message for this run only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// What must hold before the run completes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expects: Vec<Expectation>,
    /// The targets that get the result; absent takes those of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_to: Option<Vec<String>>,
    /// A repeat with this key gets the first run.
    pub idempotency_key: Arc<str>,
}

/// The conversation of a [`RunSubmission`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmissionConversation {
    /// A new one.
    #[default]
    New,
    /// The session with this key, which is created if there is none.
    Key(String),
    /// The session of the run or session that this text names, as `find` of the store's reader resolves it.
    Id(String),
}

/// Answer to a submission: its run is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedRun {
    /// The run; for a repeat, the first one.
    pub run: RunId,
    /// The run's session.
    pub session: SessionId,
    /// When the run was accepted.
    pub accepted_at: Timestamp,
    /// The record from which the run's calls are known.
    pub first: Seq,
    /// The first record that is new to the client.
    pub next: Seq,
    /// False if the run was accepted before.
    pub is_new: bool,
    /// The first model of the run's chain.
    pub model: String,
    /// The folder in which the tools work.
    pub workspace: String,
    /// True if a script is played in place of the models.
    pub is_rehearsal: bool,
    /// Lines for the user: settings that are ignored, models that are not asked.
    pub notes: Vec<String>,
}

/// How long the owner takes submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerKind {
    /// Until it is stopped: a service.
    Service,
    /// Until it is idle, or until another service wants its place: a service that a client has started.
    Background,
    /// Until its own work is done: a command.
    Command,
}

impl OwnerKind {
    /// Whether it is a service, which takes messages to sessions too.
    pub const fn is_service(self) -> bool {
        match self {
            Self::Service | Self::Background => true,
            Self::Command => false,
        }
    }
}

/// Takes submissions of other processes, in the owner of the store.
pub trait SubmissionService: Debug + Send + Sync + 'static {
    /// Submits a task; resolves when its run is durable.
    fn submit(&self, submission: RunSubmission) -> BoxFuture<'_, Result<SubmittedRun, RequestError>>;

    /// Submits the task in a file, which it removes. `name` is the file's name in the folder for submissions of the state
    /// directory.
    fn submit_file(&self, name: String) -> BoxFuture<'_, Result<SubmittedRun, RequestError>>;

    /// Sends a message to a session; resolves with its id when it is durable.
    fn send(&self, message: MessageSubmission) -> BoxFuture<'_, Result<RunId, RequestError>>;

    /// Sends the message in a file, as [`SubmissionService::submit_file`] submits a task.
    fn send_file(&self, name: String) -> BoxFuture<'_, Result<RunId, RequestError>>;

    /// Checks that the agent and the targets of a schedule are configured; the error names what is wrong.
    fn check_schedule(&self, definition: &ScheduleDefinition) -> Result<(), RequestError>;

    /// The agents: `default` first, then the others by name.
    fn agents(&self) -> Vec<AgentView>;

    /// Lets the unfinished run go on that `id` names, directly or by its conversation.
    fn resume(&self, id: String) -> BoxFuture<'_, Result<SubmittedRun, RequestError>>;

    /// Lets the unfinished runs of a session go on, with the endpoints that they need. Waits while the owner has not yet
    /// decided which sessions go on.
    fn revive(&self, session: SessionId) -> BoxFuture<'_, Result<(), RequestError>>;
}

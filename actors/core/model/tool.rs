//! Tool calls as data: specification, effect class, planned effect, result, and artifacts of long results. Also the
//! boot on which a call was started.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{Access, ContentHash, HookDecision, Image};

/// The effect of a tool call, which decides whether it may be repeated after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing; repeated after a crash.
    Pure,
    /// Safe to repeat; repeated after a crash.
    Idempotent,
    /// Must not be repeated silently; in doubt after a crash.
    Once,
}

/// The specification of a tool for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name that the model uses.
    pub name: String,
    /// A description of one or two sentences.
    pub description: String,
    /// JSON schema of its arguments, an object.
    pub parameters: serde_json::Value,
}

/// The status of a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CallStatus {
    /// The call succeeded.
    Ok,
    /// The tool failed, or the call was invalid; the content says why.
    Error,
    /// The call was stopped while it ran.
    Stopped,
    /// The call never started.
    NotStarted,
    /// The call was started and its end is unknown.
    InDoubt,
}

impl CallStatus {
    /// The name, as in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Maximum bytes of a result that a model reads; longer results are stored as artifacts.
pub const MAX_RESULT_BYTES: usize = 50_000;

/// A stored file of a session: a whole output, or an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its name within its session, for `read_artifact`.
    pub handle: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The hash of its content; `None` in records of versions that did not compute it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Box<ContentHash>>,
}

/// A file that goes with a message, as it was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its name for the receiver.
    pub name: Arc<str>,
    /// Its content.
    #[serde(flatten)]
    pub artifact: Artifact,
}

/// The result of a tool call, as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnd {
    /// The status.
    pub status: CallStatus,
    /// Text, or JSON as text.
    pub content: Arc<str>,
    /// The whole output, if the content is only a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Images that belong to the content.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub images: Arc<[Image]>,
    /// The files that a call of the tool `message` has captured; with them its message is sent.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub attachments: Arc<Vec<Attachment>>,
    /// The decisions of the hooks that were asked about the result, or that kept the call from its start.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub hooks: Arc<[HookDecision]>,
}

impl CallEnd {
    /// A result with `status` and `content`, without artifact, images and hooks.
    pub fn new(status: CallStatus, content: impl Into<Arc<str>>) -> Self {
        Self {
            status,
            content: content.into(),
            artifact: None,
            images: Arc::default(),
            attachments: Arc::default(),
            hooks: Arc::default(),
        }
    }

    /// A successful result with `content`.
    pub fn ok(content: impl Into<Arc<str>>) -> Self {
        Self::new(CallStatus::Ok, content)
    }

    /// The result of a call that never started.
    pub fn not_started(hint: &str) -> Self {
        Self::error(CallStatus::NotStarted, "not started", None, hint)
    }

    /// A result with `status` whose content is the JSON object `{error, field?, hint}`.
    pub fn error(status: CallStatus, error: &str, field: Option<&str>, hint: &str) -> Self {
        let mut object = serde_json::Map::new();
        object.insert("error".into(), error.into());
        if let Some(field) = field {
            object.insert("field".into(), field.into());
        }
        object.insert("hint".into(), hint.into());
        Self::new(status, serde_json::Value::Object(object).to_string())
    }
}

/// A rejection of a call's arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct BadArguments {
    /// The field, as a path such as `edits[2].old`; `None` for the arguments as a whole.
    pub field: Option<String>,
    /// The error.
    pub error: String,
    /// The correction to make.
    pub hint: String,
}

impl BadArguments {
    /// A rejection because of `error` in `field`, with `hint` as the correction.
    pub fn new(field: Option<&str>, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { field: field.map(Into::into), error: error.into(), hint: hint.into() }
    }
}

impl From<BadArguments> for CallEnd {
    /// The end of a call with these arguments.
    fn from(BadArguments { field, error, hint }: BadArguments) -> Self {
        Self::error(CallStatus::Error, &error, field.as_deref(), &hint)
    }
}

/// The planned effect of a call: what it touches, and whether it may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The effect class: decides whether the call may be repeated after a crash.
    pub effect: EffectClass,
    /// The files and resources that the call touches.
    pub access: Access,
    /// True if an attach can find the call after the process that started it has ended.
    pub detached: bool,
    /// True if the call waits for something, so that repeating it with the same result is no loop.
    pub polls: bool,
}

impl From<EffectClass> for Intent {
    /// An intent of this class that touches nothing shared, is not detached, and does not poll.
    fn from(effect: EffectClass) -> Self {
        Self { effect, access: Access::default(), detached: false, polls: false }
    }
}

/// The boot on which a call was started, compared with the present one. After another boot nothing of the call runs any
/// more, and data that was not synced may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// The call was started on the present boot of this machine.
    Same,
    /// The call was started on an earlier boot, or on another machine.
    Other,
}

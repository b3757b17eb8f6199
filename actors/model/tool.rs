use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ContentHash, Image, message::no_images};

/// What a tool call does to the world, and so what may be done with it after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing: is run again.
    Pure,
    /// Safe to repeat: is run again.
    Idempotent,
    /// Must not be repeated silently: ends in doubt.
    Once,
}

/// What the model is told of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name by which the model calls it.
    pub name: String,
    /// What it does, in a sentence or two.
    pub description: String,
    /// JSON schema of its arguments, an object.
    pub parameters: serde_json::Value,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// The tool did what it was asked.
    Ok,
    /// The tool ran and failed, or the call was not acceptable: the content says why.
    Error,
    /// It was stopped while it ran.
    Stopped,
    /// It never started.
    NotStarted,
    /// It had started, and what became of it is not known.
    InDoubt,
}

/// Bytes of a result that a model reads at most; what is longer is kept as an artifact.
pub const MAX_RESULT_BYTES: usize = 50_000;

/// A whole output that was too long to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its name within its session, for `read_artifact`.
    pub handle: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// The hash of its content; `None` if it was made by a version that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Box<ContentHash>>,
}

/// The end of a tool call: what the model will read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnd {
    /// How it ended.
    pub status: CallStatus,
    /// Text, or JSON as text.
    pub content: Arc<str>,
    /// The whole, if the content is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Pictures that belong to the content.
    #[serde(default, skip_serializing_if = "no_images")]
    pub images: Arc<[Image]>,
}

impl CallEnd {
    /// An end with `status` that says `content`.
    pub fn new(status: CallStatus, content: impl Into<Arc<str>>) -> Self {
        Self { status, content: content.into(), artifact: None, images: Arc::default() }
    }

    /// The tool did what it was asked, and says `content`.
    pub fn ok(content: impl Into<Arc<str>>) -> Self {
        Self::new(CallStatus::Ok, content)
    }

    /// An end with `status` whose content is `{error, field?, hint}`.
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

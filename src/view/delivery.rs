//! Views of messages to targets and their deliveries.

use std::sync::Arc;

use hermod_actors::model::{
    Attachment, CallId, Delivery, DeliveryState, OutboxContent, RunId, SessionId, StoredDelivery, Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    encoding,
    schema::{Call, Id, Time},
};

/// A message to a target, and what has become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryView {
    /// The message's id, which its target gets too.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    /// The name of the target.
    #[schema(value_type = String)]
    pub target: Arc<str>,
    /// `message` for a text of a model, `result` for the end of a run.
    pub kind: String,
    /// `pending`, `delivered` or `dead`.
    #[schema(value_type = String)]
    pub state: DeliveryState,
    /// The run that it is about.
    #[schema(value_type = Id)]
    pub run: RunId,
    /// The session of the run.
    #[schema(value_type = Id)]
    pub session: SessionId,
    /// The call of the tool `message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Call>)]
    pub call: Option<CallId>,
    /// The text; in lists its beginning.
    pub text: String,
    /// The files that go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentView>,
    /// Attempts that have ended.
    pub attempts: u32,
    /// Why the last attempt has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub error: Option<Arc<str>>,
    /// When it was decided.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub created_at: Timestamp,
    /// The time before which it is not tried again.
    #[serde(with = "encoding::optional_time", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Time>)]
    pub next_at: Option<Timestamp>,
    /// When it was delivered or given up.
    #[serde(with = "encoding::optional_time", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Time>)]
    pub ended_at: Option<Timestamp>,
}

/// A file of a message: `{name, bytes}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachmentView {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

impl From<&Attachment> for AttachmentView {
    fn from(Attachment { name, artifact }: &Attachment) -> Self {
        Self { name: name.to_string(), bytes: artifact.bytes }
    }
}

/// Characters of a text in lists.
const LIST_CHARS: usize = 200;

impl DeliveryView {
    /// The whole delivery.
    pub fn new(stored: StoredDelivery) -> Self {
        let Delivery { message, state, attempts, since: _, next_at, error, ended_at } = stored.delivery;
        let (kind, call) = match &message.content {
            OutboxContent::Message { call, .. } => ("message", Some(*call)),
            OutboxContent::Result { .. } => ("result", None),
            OutboxContent::Notice { .. } => ("notice", None),
        };
        Self {
            id: Arc::clone(&message.id),
            target: Arc::clone(&message.target),
            kind: kind.to_owned(),
            state,
            run: message.run,
            session: message.session,
            call,
            text: message.text().to_string(),
            attachments: message.attachments().iter().map(AttachmentView::from).collect(),
            attempts,
            error,
            created_at: message.created_at,
            next_at,
            ended_at,
        }
    }

    /// The delivery as lists show it.
    pub fn in_list(stored: StoredDelivery) -> Self {
        let view = Self::new(stored);
        let end = view.text.char_indices().nth(LIST_CHARS).map(|(end, _)| end);
        let text = end.map_or_else(|| view.text.clone(), |end| format!("{}…", &view.text[..end]));
        Self { text, ..view }
    }
}

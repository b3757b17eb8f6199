use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::CallId;

/// How far an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    #[default]
    Pending,
    /// Begun.
    InProgress,
    /// Done.
    Completed,
    /// Given up.
    Cancelled,
}

/// Something that the model of a session means to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// The model's own name for it, unique in its list.
    pub id: String,
    /// What is to be done.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
}

/// What the model of a session means to do, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TodoList(pub Vec<TodoItem>);

/// The list of a session is another one; see [`Body::TodoChanged`](super::Body::TodoChanged).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoChanged {
    /// The call that has changed it.
    pub call: CallId,
    /// The whole list, as it is now.
    pub items: Arc<TodoList>,
}

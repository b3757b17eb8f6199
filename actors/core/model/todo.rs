//! The todo list of a session, which its model maintains with a tool: data only. The tool's rules are in
//! `policy/todo.rs`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::CallId;

/// Status of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not started.
    #[default]
    Pending,
    /// Started.
    InProgress,
    /// Done.
    Completed,
    /// Abandoned.
    Cancelled,
}

/// An item of the todo list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// The model's id for the item, unique within the list.
    pub id: String,
    /// The task's text.
    pub content: String,
    /// The item's status.
    pub status: TodoStatus,
}

/// The todo list of a session, in the model's order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TodoList(pub Vec<TodoItem>);

/// The session's list changed: fields of [`Body::TodoChanged`](super::Body::TodoChanged).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoChanged {
    /// The call that changed the list.
    pub call: CallId,
    /// The whole list after the change.
    pub items: Arc<TodoList>,
}

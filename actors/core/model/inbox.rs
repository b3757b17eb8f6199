//! The messages in a session's inbox, and their stored form.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CallId, RunId, StopReason, SubagentRef};

/// A message in a session's inbox, durable before the session sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum InboxMessage {
    /// A subagent has ended; its own records contain the outcome.
    ChildEnded {
        /// The call that delegated the task.
        call: CallId,
        /// The subagent.
        child: SubagentRef,
    },
    /// Requests the end of a run.
    Stop {
        /// The run.
        run: RunId,
        /// The reason of the stop.
        reason: StopReason,
    },
}

impl InboxMessage {
    /// The message as JSON, its stored form.
    pub fn to_json(&self) -> Arc<str> {
        serde_json::to_string(self).expect("ids and names are JSON").into()
    }

    /// Parses a stored message.
    pub fn parse(item: &str) -> Result<Self, String> {
        serde_json::from_str(item).map_err(|error| error.to_string())
    }
}

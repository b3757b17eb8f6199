use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CallId, RunId, StopReason, SubagentRef};

/// What a session finds in its inbox: what others have to say, durable before they say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum InboxMessage {
    /// A subagent has ended. How, its own records tell.
    ChildEnded {
        /// The call that gave it its task.
        call: CallId,
        /// The subagent.
        child: SubagentRef,
    },
    /// A run is to be stopped.
    Stop {
        /// The run.
        run: RunId,
        /// Why.
        reason: StopReason,
    },
}

impl InboxMessage {
    /// As it lies in the inbox: JSON.
    pub fn to_json(&self) -> Arc<str> {
        serde_json::to_string(self).expect("ids and names are JSON").into()
    }

    /// What an item says.
    pub fn parse(item: &str) -> Result<Self, String> {
        serde_json::from_str(item).map_err(|error| error.to_string())
    }
}

use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Body;
use super::{Access, Attempt, CallEnd, CallId, EffectClass, Hash, Incarnation, RetryReason, SubagentRef};

/// See [`Body::CallAdmitted`]. The arguments are those of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAdmitted {
    /// The call.
    pub call: CallId,
    /// The tool, by its registered name.
    pub tool: Arc<str>,
    /// What it does to the world.
    pub effect: EffectClass,
    /// What it touches: it waits for earlier calls of its answer that conflict.
    #[serde(default, skip_serializing_if = "Access::is_none")]
    pub access: Access,
    /// Whether it outlives the process that starts it, and is found again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub detached: bool,
    /// Hash of the arguments as the tool gets them.
    pub arguments: Hash,
    /// The number of an earlier call of the answer that is the same and must not be made twice: this one gets its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<u32>,
}

/// See [`Body::CallStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStarted {
    /// The call.
    pub call: CallId,
    /// Its attempt.
    pub attempt: Attempt,
    /// Who starts it.
    pub incarnation: Incarnation,
    /// The boot of the machine it starts on.
    pub boot: Arc<str>,
    /// The subagents that it begins, in the order of their tasks.
    #[serde(default, skip_serializing_if = "no_children")]
    pub children: Arc<[SubagentRef]>,
}

fn no_children(children: &Arc<[SubagentRef]>) -> bool {
    children.is_empty()
}

/// See [`Body::CallEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnded {
    /// The call.
    pub call: CallId,
    /// The attempt that ended; 0 if none had started.
    pub attempt: Attempt,
    /// How, and with what.
    #[serde(flatten)]
    pub end: CallEnd,
}

/// See [`Body::CallLost`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLost {
    /// The call.
    pub call: CallId,
    /// The attempt that was lost.
    pub attempt: Attempt,
    /// Why there is another one.
    #[serde(default, skip_serializing_if = "RetryReason::is_lost")]
    #[serde(rename = "why")]
    pub reason: RetryReason,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands a reference
fn is_false(flag: &bool) -> bool {
    !flag
}

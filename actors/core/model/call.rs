//! Record bodies of tool calls: admission, attempts and results.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Body;
use super::{
    Access, Attempt, AttemptId, CallEnd, CallId, EffectClass, Hash, HookedCall, Incarnation, Repetition,
    RetryReason, SubagentRef,
};

/// Fields of [`Body::CallAdmitted`]. The arguments themselves are in the answer's record, unless a hook has replaced them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAdmitted {
    /// The call.
    pub call: CallId,
    /// The tool's registered name.
    pub tool: Arc<str>,
    /// The effect class of the call.
    pub effect: EffectClass,
    /// The call's access. Earlier calls of its answer with a conflicting access run first.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub access: Access,
    /// True if the call outlives the process that starts it and can be found again.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub detached: bool,
    /// True if the call waits for something: its repetition with the same result is no loop.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub polls: bool,
    /// Hash of the arguments that the tool receives.
    pub arguments: Hash,
    /// Number of an identical earlier call of the answer that must not run twice; this call gets its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<u32>,
    /// What hooks have decided about the call, and the arguments that they have put in place of the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Arc<HookedCall>>,
}

/// Fields of [`Body::CallStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStarted {
    /// The call.
    pub call: CallId,
    /// The attempt, counted from 1 within its call.
    pub attempt: Attempt,
    /// The incarnation that starts the attempt.
    pub incarnation: Incarnation,
    /// The machine's boot at the start.
    pub boot: Arc<str>,
    /// The subagents that the call starts, in the order of their tasks.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub children: Arc<[SubagentRef]>,
}

/// Fields of [`Body::CallEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnded {
    /// The call.
    pub call: CallId,
    /// The attempt that ended; 0 if none had started.
    pub attempt: Attempt,
    /// The status and the result.
    #[serde(flatten)]
    pub end: CallEnd,
    /// The repetition that is found with the last result of an answer. The model is warned behind the results, or the
    /// run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetition: Option<Repetition>,
}

/// Fields of [`Body::CallLost`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLost {
    /// The call.
    pub call: CallId,
    /// The attempt that was lost.
    pub attempt: Attempt,
    /// The reason for another attempt.
    #[serde(rename = "why", default, skip_serializing_if = "super::is_default")]
    pub reason: RetryReason,
}

impl CallEnded {
    /// The end of this attempt of a call, without a repetition.
    pub const fn new(call: CallId, attempt: Attempt, end: CallEnd) -> Self {
        Self { call, attempt, end, repetition: None }
    }
}

impl CallStarted {
    /// The attempt that this record is about.
    pub const fn id(&self) -> AttemptId {
        AttemptId { call: self.call, attempt: self.attempt }
    }
}

//! Port of the hooks that decide: they are asked at points of a run, and may refuse or replace what would happen.

use std::{fmt::Debug, future::ready, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;

use crate::model::{AttemptId, CallStatus, HookAnswer, HookPoint, ModelRef, RunSpec, SessionId};

/// Hooks that decide. They belong to the process: no spec of a run can loosen them. Who implements this joins the
/// verdicts of several hooks with a [`HookTally`](crate::HookTally).
pub trait DecisionHooks: Debug + Send + Sync + 'static {
    /// Whether a hook is asked at this point; with a tool, whether one is asked about calls of that tool. Must be cheap:
    /// it is called for every call.
    fn is_asked(&self, point: HookPoint, tool: Option<&str>) -> bool;

    /// Asks the hooks of this point by priority, until one refuses. Ends within a time of its own: a hook that gives no
    /// verdict in time refuses. What runs for a hook ends when the future is dropped.
    fn ask(&self, question: HookQuestion) -> BoxFuture<'static, HookAnswer>;
}

/// What hooks are asked about.
#[derive(Debug, Clone)]
pub struct HookQuestion {
    /// Where.
    pub point: HookPoint,
    /// The session.
    pub session: SessionId,
    /// The call and its attempt; attempt 0 if it has not started, and iteration 0 of a run. Together with the point they identify the question.
    pub id: AttemptId,
    /// The spec of the run.
    pub spec: Arc<RunSpec>,
    /// The call itself.
    pub subject: HookSubject,
}

/// What a question is about.
#[derive(Debug, Clone, PartialEq)]
pub enum HookSubject {
    /// A tool call that has not started.
    Call {
        /// The registered name of the tool.
        tool: Arc<str>,
        /// Its arguments, a JSON object; a replacement takes their place.
        arguments: Value,
    },
    /// A tool call that has ended.
    Result {
        /// The registered name of the tool.
        tool: Arc<str>,
        /// The arguments that the tool got, as JSON.
        arguments: Arc<str>,
        /// The status of the result.
        status: CallStatus,
        /// The result; a replacement takes its place.
        content: Arc<str>,
    },
    /// An accepted run that has not begun.
    Run {
        /// Its task with the collected messages; a replacement has another `input`, or `context` to add, or both.
        input: Arc<str>,
    },
    /// An attempt of a model call that has not been sent.
    ModelCall {
        /// The model.
        model: ModelRef,
        /// Bytes of the request.
        bytes: u64,
        /// The limit of output tokens.
        max_tokens: u64,
    },
}

impl HookSubject {
    /// The tool of the call; `None` for a model call or a run.
    pub const fn tool(&self) -> Option<&Arc<str>> {
        match self {
            Self::Call { tool, .. } | Self::Result { tool, .. } => Some(tool),
            Self::ModelCall { .. } | Self::Run { .. } => None,
        }
    }
}

/// No hooks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl DecisionHooks for NoHooks {
    fn is_asked(&self, _: HookPoint, _: Option<&str>) -> bool {
        false
    }

    fn ask(&self, _: HookQuestion) -> BoxFuture<'static, HookAnswer> {
        Box::pin(ready(HookAnswer::default()))
    }
}

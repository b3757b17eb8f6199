//! Port of tools: the tool, a prepared call, its invocation, and finding out how an earlier attempt ended. Scheduling,
//! approval and records are the core's.

use std::{
    fmt::{self, Debug},
    future::ready,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::AttemptArtifacts;
use crate::model::{
    Attempt, BadArguments, Boot, CallEnd, CallId, Intent, RunId, RunSpec, Timestamp, ToolSpec,
};

/// A tool that a model may call.
pub trait Tool: Debug + Send + Sync + 'static {
    /// The description sent to the model.
    fn spec(&self) -> &ToolSpec;

    /// Validates arguments without running anything: returns the call, or why it is invalid. May resolve paths in
    /// `workspace` but must do nothing slower. Steps, memory and stack depth must be bounded for all arguments: a model
    /// writes them.
    fn prepare(&self, arguments: &Value, workspace: &str) -> Result<PreparedCall, BadArguments>;

    /// True if [`Tool::prepare`] touches no file and takes microseconds for a few kB of arguments. Then it may run on a
    /// thread that other sessions share, otherwise on one where blocking is allowed.
    fn prepares_without_blocking(&self) -> bool {
        false
    }

    /// True if the session answers the calls itself, in the decision that takes them. Only tools of this crate are.
    #[doc(hidden)]
    fn is_answered_by_session(&self) -> bool {
        false
    }

    /// Called when the end of this attempt is in the journal: the tool may delete what it kept for
    /// [`CallWork::attach`].
    fn forget(&self, _call: CallId, _attempt: Attempt) {}

    /// Called when the run was ended without the ends of its calls: the tool ends those that still run.
    fn abandon(&self, _run: RunId) {}

    /// Called once, when the tool was exchanged and none of its calls is left, or at the end of the runtime: the tool
    /// ends what it keeps alive between calls. Must not block. Detached calls continue.
    fn close(&self) {}
}

/// A call whose arguments its tool has accepted. Good for one attempt.
pub struct PreparedCall {
    /// What the call would do.
    pub intent: Intent,
    /// Time limit of [`CallWork::run`]: at the limit its future is dropped, and the model reads that it timed out.
    /// `None` means the default of 10 min. A tool with its own time limit returns slightly more than that.
    pub limit: Option<Duration>,
    /// The work, with its arguments.
    pub work: Box<dyn CallWork>,
}

impl PreparedCall {
    /// A call with the default time limit.
    pub fn new(intent: impl Into<Intent>, work: impl CallWork) -> Self {
        Self { intent: intent.into(), limit: None, work: Box::new(work) }
    }
}

impl Debug for PreparedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { intent, limit, work: _ } = self;
        f.debug_struct("PreparedCall").field("intent", intent).field("limit", limit).finish_non_exhaustive()
    }
}

/// The work of a [`PreparedCall`]. A closure is the work of a call that cannot be attached to.
pub trait CallWork: Send + 'static {
    /// Runs the call. Every failure is an end with a status, never a panic. When `invocation.cancel` fires, the call
    /// ends within 2.1 s as `Stopped`. When the future is dropped, nothing that it started keeps running, except a call
    /// that is [`Intent::detached`].
    fn run(self: Box<Self>, invocation: Invocation) -> BoxFuture<'static, CallEnd>;

    /// Finds out how an attempt ended of which no end is recorded: an attempt of an
    /// [`EffectClass::Once`](crate::model::EffectClass::Once) call that an earlier incarnation started, or one whose
    /// [`CallWork::run`] panicked. If it still runs, the future resolves when it ends; `invocation.cancel` ends the
    /// attempt, dropping the future does not. Never starts the call.
    ///
    /// [`PreparedCall::limit`] does not apply, because it reflects the present settings, not those of the attempt's
    /// start: the attempt ends by its own limit. After a day it is cancelled.
    ///
    /// After a restart, called only for calls that were [`Intent::detached`]. A tool whose calls end with the process
    /// needs no implementation.
    fn attach(self: Box<Self>, _invocation: Invocation, _boot: Boot) -> BoxFuture<'static, AttachOutcome> {
        Box::pin(ready(AttachOutcome::Unknown))
    }
}

impl<F, R> CallWork for F
where
    F: FnOnce(Invocation) -> R + Send + 'static,
    R: Future<Output = CallEnd> + Send + 'static,
{
    fn run(self: Box<Self>, invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        Box::pin(self(invocation))
    }
}

/// The result of [`CallWork::attach`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachOutcome {
    /// The attempt has ended with this result.
    Ended(CallEnd),
    /// The attempt was never started and never will be.
    NeverStarted,
    /// The attempt was started and its end is unknown. As far as can be known, nothing of it still runs: it may be
    /// repeated at once. An implementation that stops waiting for an attempt ends it first.
    Unknown,
}

/// One attempt of a tool call.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The call. Call and attempt together name the artifacts and files of the tool.
    pub call: CallId,
    /// The attempt, counted from 1 within its call.
    pub attempt: Attempt,
    /// The spec of the run, with the names of its tools.
    pub spec: Arc<RunSpec>,
    /// The isolation key of the run's tools.
    pub isolation_key: Arc<str>,
    /// The working directory of the tool.
    pub workspace: Arc<str>,
    /// Start time of the attempt.
    pub now: Timestamp,
    /// Storage for output that is too long for the model. The runtime stores every result over
    /// [`MAX_RESULT_BYTES`](crate::model::MAX_RESULT_BYTES) there; a tool with much output writes there as it is
    /// produced.
    pub artifacts: AttemptArtifacts,
    /// Fires when the call must stop.
    pub cancel: CancellationToken,
    /// Receives progress notes of the call.
    pub progress: ProgressReporter,
}

/// Passes progress notes of a call to present watchers. The notes are not stored.
#[derive(Clone, Default)]
pub struct ProgressReporter(Option<Arc<ReportFn>>);

type ReportFn = dyn Fn(&str) + Send + Sync;

impl ProgressReporter {
    /// Passes every note to `take`, which must not block.
    pub fn new(take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(take)))
    }

    /// Reports progress as one line of text.
    pub fn report(&self, note: &str) {
        if let Some(take) = &self.0 {
            take(note);
        }
    }
}

impl Debug for ProgressReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressReporter").finish_non_exhaustive()
    }
}

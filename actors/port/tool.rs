use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::AttemptArtifacts;
use crate::model::{Access, Attempt, CallEnd, CallId, EffectClass, RunId, Timestamp, ToolSpec};

/// Something that the model may call.
pub trait Tool: Debug + Send + Sync + 'static {
    /// What the model is told of it.
    fn spec(&self) -> &ToolSpec;

    /// Judges arguments without running anything: what the call would do in `workspace`, or why it is not acceptable.
    /// It may look where a path leads, and nothing that takes longer. Its steps, its memory and the depth of its stack have
    /// a bound, whatever the arguments are: they come from a model.
    fn plan(&self, arguments: &Value, workspace: &str) -> Result<Intent, BadArguments>;

    /// Whether [`Tool::plan`] looks at no file and takes microseconds for a few kB of arguments. Then it may be called on a
    /// thread that other sessions need, else it is called on one where it may block.
    fn plans_without_blocking(&self) -> bool {
        false
    }

    /// Runs. Every failure is an end with a status, never a panic. When `invocation.cancel` fires it ends within
    /// 2.1 s as `Stopped`; when the future is dropped, nothing that it
    /// started is left running, but what is [`Intent::detached`].
    fn run(&self, invocation: Invocation) -> BoxFuture<'static, CallEnd>;

    /// How long a call with these arguments may take at the very most: then its future is dropped, and the model reads
    /// that it timed out. `None` means the default of 10 min. A tool that has a limit of its own says a little more here.
    fn limit(&self, _arguments: &Value) -> Option<Duration> {
        None
    }

    /// What became of an attempt of a [`EffectClass::Once`] call that an earlier incarnation of the session had started
    /// and whose end nobody saw. If it is still under way, this resolves when it has ended, and ends it when
    /// `invocation.cancel` fires; when the future is dropped, it goes on. Never starts the call.
    ///
    /// It ends by itself, and knows how long that may take: [`Tool::limit`] does not hold, for it says what is set now and
    /// not when the attempt was started. After a day it is cancelled.
    ///
    /// Asked only about calls that were [`Intent::detached`]. A tool whose calls die with the process has none.
    fn attach(&self, _invocation: Invocation, _boot: Boot) -> BoxFuture<'static, AttachOutcome> {
        Box::pin(std::future::ready(AttachOutcome::Unknown))
    }

    /// The end of this attempt is in the journal: what was kept to find it again is not needed any more.
    fn forget(&self, _call: CallId, _attempt: Attempt) {}

    /// The run was ended without the ends of its calls: what is left of them is to be ended.
    fn abandon(&self, _run: RunId) {}
}

/// Whether a call was started on the boot of the machine that is now: after another one nothing runs that ran before, and
/// what was not synced may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// On this one.
    Same,
    /// On an earlier one, or on another machine.
    Other,
}

/// What is found of a call that was started earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachOutcome {
    /// It has ended so.
    Ended(CallEnd),
    /// It was never begun, and that attempt never will be.
    NeverStarted,
    /// It had begun, and what became of it is not known. Nothing of it runs any more, as far as can be known: it may be
    /// made again at once. Whoever gives up to wait for it ends it first.
    Unknown,
}

/// What a call would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Whether it may be repeated.
    pub effect: EffectClass,
    /// What it touches.
    pub access: Access,
    /// Whether [`Tool::attach`] can tell what became of it when the process that has started it is gone.
    pub detached: bool,
}

impl From<EffectClass> for Intent {
    /// A call that touches nothing that others could touch.
    fn from(effect: EffectClass) -> Self {
        Self { effect, access: Access::default(), detached: false }
    }
}

/// Arguments that are not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct BadArguments {
    /// The field, as a path such as `edits[2].old`; `None` if it is the whole.
    pub field: Option<String>,
    /// What is wrong, with the value.
    pub error: String,
    /// What to do instead.
    pub hint: String,
}

/// One attempt of a tool call.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The call; with the attempt it names what the tool leaves behind.
    pub call: CallId,
    /// The attempt.
    pub attempt: Attempt,
    /// The isolation key of the run's tools.
    pub isolation_key: Arc<str>,
    /// The folder in which the tool works.
    pub workspace: Arc<str>,
    /// The arguments, an object that `plan` accepted.
    pub arguments: Value,
    /// The time at which the attempt starts.
    pub now: Timestamp,
    /// Where output goes that is too long to be shown. A result over [`MAX_OUTPUT`](crate::model::MAX_OUTPUT) bytes is
    /// kept there in any case; a tool that makes much output puts it there as it comes.
    pub artifacts: AttemptArtifacts,
    /// Fires when the call is to be stopped.
    pub cancel: CancellationToken,
    /// Where the call may say how far it is.
    pub progress: ProgressReporter,
}

/// Takes notes on how far a call is, for whoever watches now. They are kept nowhere.
#[derive(Clone, Default)]
pub struct ProgressReporter(Option<Arc<ReportFn>>);

type ReportFn = dyn Fn(&str) + Send + Sync;

impl ProgressReporter {
    /// Hands every note to `take`, which must not block.
    pub fn new(take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(take)))
    }

    /// Notes something: a line of text.
    pub fn report(&self, note: &str) {
        if let Some(take) = &self.0 {
            take(note);
        }
    }
}

impl Debug for ProgressReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").finish_non_exhaustive()
    }
}

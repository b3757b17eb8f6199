//! Adapter from tools with typed arguments to the [`Tool`] port.

use std::{
    fmt::Debug,
    future::{Future, ready},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    model::{Access, Attempt, CallEnd, CallId, CallStatus, EffectClass, RunId, Timestamp, ToolSpec},
    port::{AttachOutcome, AttemptArtifacts, BadArguments, Boot, Intent, Invocation, ProgressReporter, Tool},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{ArgumentSchema, Settings, blocking::panic_end, paths::ToolWorkspace};

/// A tool whose arguments are a type. [`make`] turns it into a [`Tool`].
pub trait TypedTool: Debug + Send + Sync + 'static {
    /// Name of the tool for the model.
    const NAME: &'static str;
    /// Description for the model, in a sentence or two.
    const DESCRIPTION: &'static str;
    /// Whether a call may be repeated after a crash.
    const EFFECT: EffectClass;
    /// The arguments: a struct with doc comments and `deny_unknown_fields`.
    type Arguments: DeserializeOwned + JsonSchema + Send + 'static;

    /// Checks what the schema cannot express.
    fn check(_arguments: &Self::Arguments) -> Result<(), BadArguments> {
        Ok(())
    }

    /// What a call with these arguments touches in `workspace`; by default nothing that other calls share.
    fn access(_arguments: &Self::Arguments, _workspace: &str, _settings: &Settings) -> Access {
        Access::default()
    }

    /// Runs a call whose arguments passed `check`.
    fn run(arguments: Self::Arguments, site: ToolContext) -> impl Future<Output = CallEnd> + Send;

    /// True if the tool's calls outlive the process and can be attached to.
    fn is_detached(_settings: &Settings) -> bool {
        false
    }

    /// Called when a run was ended without the ends of its calls.
    fn abandon(_run: RunId, _settings: &Settings) {}

    /// The call's upper time limit, if the tool has its own. The arguments are not validated yet.
    fn limit(_arguments: &Value, _settings: &Settings) -> Option<Duration> {
        None
    }

    /// Finds the outcome of a call that an earlier process started; see [`Tool::attach`]. The default fits tools whose
    /// calls end with the process.
    fn attach(
        _arguments: Self::Arguments,
        _site: ToolContext,
        _boot: Boot,
    ) -> impl Future<Output = AttachOutcome> + Send {
        ready(AttachOutcome::Unknown)
    }

    /// Called when the end of this attempt is in the journal; see [`Tool::forget`].
    fn forget(_call: CallId, _attempt: Attempt, _settings: &Settings) {}
}

/// The context of one attempt of a call.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The call's id.
    pub call: CallId,
    /// Number of the attempt.
    pub attempt: Attempt,
    /// The folder in which the tool works.
    pub workspace: Arc<str>,
    /// The time at which the call started.
    pub now: Timestamp,
    /// Stores long outputs under the name of the call and the attempt.
    pub artifacts: AttemptArtifacts,
    /// Fires when the call has to stop.
    pub cancel: CancellationToken,
    /// Receives progress reports.
    pub progress: ProgressReporter,
    /// The operator's settings.
    pub settings: Settings,
}

impl ToolContext {
    /// The part of the workspace that a file tool may touch.
    pub(super) fn area(&self) -> ToolWorkspace {
        ToolWorkspace { workspace: Arc::clone(&self.workspace), state_dir: self.settings.state.clone() }
    }
}

/// Creates the tool that `T` describes.
pub fn make<T: TypedTool>(settings: Settings) -> Arc<dyn Tool> {
    let shape = ArgumentSchema::of::<T::Arguments>();
    let spec = ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        parameters: shape.schema().clone(),
    };
    Arc::new(TypedToolAdapter::<T> { spec, shape: Arc::new(shape), settings, marker: PhantomData })
}

#[derive(Debug)]
struct TypedToolAdapter<T> {
    spec: ToolSpec,
    shape: Arc<ArgumentSchema>,
    settings: Settings,
    marker: PhantomData<T>,
}

fn parse_arguments<T: TypedTool>(
    shape: &ArgumentSchema,
    arguments: &Value,
) -> Result<T::Arguments, BadArguments> {
    let arguments = shape.parse(arguments)?;
    T::check(&arguments)?;
    Ok(arguments)
}

/// Parses arguments off the async threads, so that it blocks no session. They are parsed at the admission of the call
/// and again when it runs, because a record has only their text.
async fn parse_off_thread<T: TypedTool>(
    shape: Arc<ArgumentSchema>,
    arguments: Value,
) -> Result<Result<T::Arguments, BadArguments>, JoinError> {
    spawn_blocking(move || parse_arguments::<T>(&shape, &arguments)).await
}

fn tool_context(invocation: Invocation, settings: Settings) -> ToolContext {
    ToolContext {
        call: invocation.call,
        attempt: invocation.attempt,
        workspace: invocation.workspace,
        now: invocation.now,
        artifacts: invocation.artifacts,
        cancel: invocation.cancel,
        progress: invocation.progress,
        settings,
    }
}

impl<T: TypedTool> Tool for TypedToolAdapter<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn plan(&self, arguments: &Value, workspace: &str) -> Result<Intent, BadArguments> {
        let arguments = parse_arguments::<T>(&self.shape, arguments)?;
        let detached = T::is_detached(&self.settings);
        Ok(Intent { effect: T::EFFECT, access: T::access(&arguments, workspace, &self.settings), detached })
    }

    fn run(&self, mut invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        let (settings, shape) = (self.settings.clone(), Arc::clone(&self.shape));
        Box::pin(async move {
            let arguments = std::mem::take(&mut invocation.arguments);
            match parse_off_thread::<T>(shape, arguments).await {
                Ok(Ok(arguments)) => T::run(arguments, tool_context(invocation, settings)).await,
                Ok(Err(bad)) => refused_end(&bad),
                Err(error) => panic_end(&error),
            }
        })
    }

    fn attach(&self, mut invocation: Invocation, boot: Boot) -> BoxFuture<'static, AttachOutcome> {
        let (settings, shape) = (self.settings.clone(), Arc::clone(&self.shape));
        Box::pin(async move {
            let arguments = std::mem::take(&mut invocation.arguments);
            match parse_off_thread::<T>(shape, arguments).await {
                Ok(Ok(arguments)) => T::attach(arguments, tool_context(invocation, settings), boot).await,
                // An earlier version accepted them, so the call may have begun.
                Ok(Err(_)) | Err(_) => AttachOutcome::Unknown,
            }
        })
    }

    fn abandon(&self, run: RunId) {
        T::abandon(run, &self.settings);
    }

    fn forget(&self, call: CallId, attempt: Attempt) {
        T::forget(call, attempt, &self.settings);
    }

    fn limit(&self, arguments: &Value) -> Option<Duration> {
        T::limit(arguments, &self.settings)
    }
}

/// The end of a call whose arguments are rejected when it runs.
pub(super) fn refused_end(bad: &BadArguments) -> CallEnd {
    CallEnd::error(CallStatus::Error, &bad.error, bad.field.as_deref(), &bad.hint)
}

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
    port::{BadArguments, Boot, Found, Intent, Invocation, Progress, Shelf, Tool},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{Settings, Shape, blocking::failed_inside, paths::Area};

/// A tool whose arguments are a type. This is all that a tool's file says; `make` does the rest.
pub trait Typed: Debug + Send + Sync + 'static {
    /// The name by which the model calls it.
    const NAME: &'static str;
    /// What it does, in a sentence or two.
    const DESCRIPTION: &'static str;
    /// What a call does to the world.
    const EFFECT: EffectClass;
    /// The arguments: a struct with doc comments and `deny_unknown_fields`.
    type Arguments: DeserializeOwned + JsonSchema + Send + 'static;

    /// Judges what the schema cannot say.
    fn check(_arguments: &Self::Arguments) -> Result<(), BadArguments> {
        Ok(())
    }

    /// What a call with these arguments touches in `workspace`; nothing that others could touch, if it does not say.
    fn access(_arguments: &Self::Arguments, _workspace: &str, _settings: &Settings) -> Access {
        Access::default()
    }

    /// Runs with arguments that passed `check`.
    fn run(arguments: Self::Arguments, site: Site) -> impl Future<Output = CallEnd> + Send;

    /// Whether its calls outlive the process, and are found again.
    fn is_detached(_settings: &Settings) -> bool {
        false
    }

    /// The run was ended without the ends of its calls.
    fn abandon(_run: RunId, _settings: &Settings) {}

    /// How long it may take at the very most, if it has a limit of its own. The arguments are not judged yet.
    fn limit(_arguments: &Value, _settings: &Settings) -> Option<Duration> {
        None
    }

    /// What became of a call that an earlier process had started; see [`Tool::attach`]. A tool whose calls die with the
    /// process leaves it at that.
    fn attach(_arguments: Self::Arguments, _site: Site, _boot: Boot) -> impl Future<Output = Found> + Send {
        ready(Found::Unknown)
    }

    /// The end of this attempt is in the journal; see [`Tool::forget`].
    fn forget(_call: CallId, _attempt: Attempt, _settings: &Settings) {}
}

/// Where and when a call works.
#[derive(Debug, Clone)]
pub struct Site {
    /// The call.
    pub call: CallId,
    /// The attempt.
    pub attempt: Attempt,
    /// The folder in which the tool works.
    pub workspace: Arc<str>,
    /// The time at which the call started.
    pub now: Timestamp,
    /// Where output goes that is too long to be shown; knows the call and the attempt.
    pub shelf: Shelf,
    /// Fires when the call is to be stopped.
    pub cancel: CancellationToken,
    /// Where the call may say how far it is.
    pub progress: Progress,
    /// What the operator decides.
    pub settings: Settings,
}

impl Site {
    /// What of the workspace a file tool may touch.
    pub(super) fn area(&self) -> Area {
        Area { workspace: Arc::clone(&self.workspace), closed: self.settings.state.clone() }
    }
}

/// The tool that `T` describes.
pub fn make<T: Typed>(settings: Settings) -> Arc<dyn Tool> {
    let shape = Shape::of::<T::Arguments>();
    let spec = ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        parameters: shape.schema().clone(),
    };
    Arc::new(Made::<T> { spec, shape: Arc::new(shape), settings, of: PhantomData })
}

#[derive(Debug)]
struct Made<T> {
    spec: ToolSpec,
    shape: Arc<Shape>,
    settings: Settings,
    of: PhantomData<T>,
}

fn read<T: Typed>(shape: &Shape, arguments: &Value) -> Result<T::Arguments, BadArguments> {
    let arguments = shape.parse(arguments)?;
    T::check(&arguments)?;
    Ok(arguments)
}

/// Judges arguments where that holds up no session.
async fn judged<T: Typed>(
    shape: Arc<Shape>,
    arguments: Value,
) -> Result<Result<T::Arguments, BadArguments>, JoinError> {
    spawn_blocking(move || read::<T>(&shape, &arguments)).await
}

fn site(invocation: Invocation, settings: Settings) -> Site {
    Site {
        call: invocation.call,
        attempt: invocation.attempt,
        workspace: invocation.workspace,
        now: invocation.now,
        shelf: invocation.shelf,
        cancel: invocation.cancel,
        progress: invocation.progress,
        settings,
    }
}

impl<T: Typed> Tool for Made<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn plan(&self, arguments: &Value, workspace: &str) -> Result<Intent, BadArguments> {
        let arguments = read::<T>(&self.shape, arguments)?;
        let detached = T::is_detached(&self.settings);
        Ok(Intent { effect: T::EFFECT, access: T::access(&arguments, workspace, &self.settings), detached })
    }

    fn run(&self, mut invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        let (settings, shape) = (self.settings.clone(), Arc::clone(&self.shape));
        Box::pin(async move {
            let arguments = std::mem::take(&mut invocation.arguments);
            match judged::<T>(shape, arguments).await {
                Ok(Ok(arguments)) => T::run(arguments, site(invocation, settings)).await,
                Ok(Err(bad)) => refused(&bad),
                Err(error) => failed_inside(&error),
            }
        })
    }

    fn attach(&self, mut invocation: Invocation, boot: Boot) -> BoxFuture<'static, Found> {
        let (settings, shape) = (self.settings.clone(), Arc::clone(&self.shape));
        Box::pin(async move {
            let arguments = std::mem::take(&mut invocation.arguments);
            match judged::<T>(shape, arguments).await {
                Ok(Ok(arguments)) => T::attach(arguments, site(invocation, settings), boot).await,
                // An earlier version took them, so it may have begun.
                Ok(Err(_)) | Err(_) => Found::Unknown,
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

/// The end of a call whose arguments turned out not to be acceptable.
pub(super) fn refused(bad: &BadArguments) -> CallEnd {
    CallEnd::error(CallStatus::Error, &bad.error, bad.field.as_deref(), &bad.hint)
}

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
use tokio_util::sync::CancellationToken;

use super::{Settings, Shape, paths::Area};

/// A tool whose arguments are a type. This is all that a tool's file says; `make` does the rest.
pub trait Typed: Debug + Send + Sync + 'static {
    /// The name by which the model calls it.
    const NAME: &'static str;
    /// What it does, in a sentence or two.
    const DESCRIPTION: &'static str;
    /// What a call does to the world.
    const EFFECT: EffectClass;
    /// The arguments: a struct with doc comments and `deny_unknown_fields`.
    type Arguments: DeserializeOwned + JsonSchema + Send;

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

    /// How long it may take at the very most, if it has a limit of its own.
    fn limit(_arguments: &Self::Arguments, _settings: &Settings) -> Option<Duration> {
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
    Arc::new(Made::<T> { spec, shape, settings, of: PhantomData })
}

#[derive(Debug)]
struct Made<T> {
    spec: ToolSpec,
    shape: Shape,
    settings: Settings,
    of: PhantomData<T>,
}

impl<T: Typed> Made<T> {
    fn read(&self, arguments: &Value) -> Result<T::Arguments, BadArguments> {
        let arguments = self.shape.parse(arguments)?;
        T::check(&arguments)?;
        Ok(arguments)
    }

    fn site(&self, invocation: Invocation) -> Site {
        Site {
            call: invocation.call,
            attempt: invocation.attempt,
            workspace: invocation.workspace,
            now: invocation.now,
            shelf: invocation.shelf,
            cancel: invocation.cancel,
            progress: invocation.progress,
            settings: self.settings.clone(),
        }
    }
}

impl<T: Typed> Tool for Made<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn plan(&self, arguments: &Value, workspace: &str) -> Result<Intent, BadArguments> {
        let arguments = self.read(arguments)?;
        let detached = T::is_detached(&self.settings);
        Ok(Intent { effect: T::EFFECT, access: T::access(&arguments, workspace, &self.settings), detached })
    }

    fn run(&self, invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        let arguments = self.read(&invocation.arguments);
        let site = self.site(invocation);
        Box::pin(async move {
            match arguments {
                Ok(arguments) => T::run(arguments, site).await,
                Err(bad) => refused(&bad),
            }
        })
    }

    fn attach(&self, invocation: Invocation, boot: Boot) -> BoxFuture<'static, Found> {
        let arguments = self.read(&invocation.arguments);
        let site = self.site(invocation);
        Box::pin(async move {
            match arguments {
                Ok(arguments) => T::attach(arguments, site, boot).await,
                // An earlier version took them, so it may have begun.
                Err(_) => Found::Unknown,
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
        T::limit(&self.read(arguments).ok()?, &self.settings)
    }
}

/// The end of a call whose arguments turned out not to be acceptable.
pub(super) fn refused(bad: &BadArguments) -> CallEnd {
    CallEnd::error(CallStatus::Error, &bad.error, bad.field.as_deref(), &bad.hint)
}

//! Tools with typed arguments: the trait [`TypedTool`], the context of a call, and the adapter to the [`Tool`] port.

use std::{
    fmt::Debug,
    future::{Future, ready},
    marker::PhantomData,
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    model::{Access, Attempt, CallEnd, CallId, EffectClass, RunId, ToolSpec},
    port::{AttachOutcome, BadArguments, Boot, CallWork, Intent, Invocation, PreparedCall, Tool},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ArgumentSchema, Settings};

/// A tool whose arguments are a type. [`make`] turns it into a [`Tool`].
pub trait TypedTool: Debug + Send + Sync + 'static {
    /// Name of the tool for the model.
    const NAME: &'static str;
    /// Description for the model, in a sentence or two.
    const DESCRIPTION: &'static str;
    /// Whether a call may be repeated after a crash.
    const EFFECT: EffectClass;
    /// True if a call waits for something, so that repeating it with the same result is no loop.
    const POLLS: bool = false;
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
    fn run(arguments: Self::Arguments, context: ToolContext) -> impl Future<Output = CallEnd> + Send;

    /// True if the tool's calls outlive the process and can be attached to.
    fn is_detached(_settings: &Settings) -> bool {
        false
    }

    /// Called when a run was ended without the ends of its calls.
    fn abandon(_run: RunId, _settings: &Settings) {}

    /// The call's upper time limit, if the tool has its own.
    fn limit(_arguments: &Self::Arguments, _settings: &Settings) -> Option<Duration> {
        None
    }

    /// Finds the outcome of a call that an earlier process started; see [`CallWork::attach`]. The default fits tools
    /// whose calls end with the process.
    fn attach(
        _arguments: Self::Arguments,
        _context: ToolContext,
        _boot: Boot,
    ) -> impl Future<Output = AttachOutcome> + Send {
        ready(AttachOutcome::Unknown)
    }

    /// Called when the end of this attempt is in the journal; see [`Tool::forget`].
    fn forget(_call: CallId, _attempt: Attempt, _settings: &Settings) {}
}

/// The context of one attempt of a call: the attempt itself, to which this derefs, and the settings.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The attempt of the call.
    pub invocation: Invocation,
    /// The operator's settings for the agent of the run.
    pub settings: Settings,
}

impl Deref for ToolContext {
    type Target = Invocation;

    fn deref(&self) -> &Invocation {
        &self.invocation
    }
}

/// Creates the tool that `T` describes.
pub fn make<T: TypedTool>(settings: Settings) -> Arc<dyn Tool> {
    let schema = ArgumentSchema::of::<T::Arguments>();
    let spec = ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        parameters: schema.schema().clone(),
    };
    Arc::new(TypedToolAdapter::<T> { spec, schema, settings, marker: PhantomData })
}

#[derive(Debug)]
struct TypedToolAdapter<T> {
    spec: ToolSpec,
    schema: ArgumentSchema,
    settings: Settings,
    marker: PhantomData<T>,
}

/// A call with valid arguments.
struct TypedCall<T: TypedTool> {
    arguments: T::Arguments,
    settings: Settings,
}

impl<T: TypedTool> Tool for TypedToolAdapter<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &Value, workspace: &str) -> Result<PreparedCall, BadArguments> {
        let arguments: T::Arguments = self.schema.parse(arguments)?;
        T::check(&arguments)?;
        let settings = self.settings.clone();
        let intent = Intent {
            effect: T::EFFECT,
            access: T::access(&arguments, workspace, &settings),
            detached: T::is_detached(&settings),
            polls: T::POLLS,
        };
        let limit = T::limit(&arguments, &settings);
        Ok(PreparedCall { intent, limit, work: Box::new(TypedCall::<T> { arguments, settings }) })
    }

    fn abandon(&self, run: RunId) {
        T::abandon(run, &self.settings);
    }

    fn forget(&self, call: CallId, attempt: Attempt) {
        T::forget(call, attempt, &self.settings);
    }
}

impl<T: TypedTool> CallWork for TypedCall<T> {
    fn run(self: Box<Self>, invocation: Invocation) -> BoxFuture<'static, CallEnd> {
        let settings = self.settings.for_agent(&invocation.spec.agent);
        Box::pin(T::run(self.arguments, ToolContext { invocation, settings }))
    }

    fn attach(self: Box<Self>, invocation: Invocation, boot: Boot) -> BoxFuture<'static, AttachOutcome> {
        let settings = self.settings.for_agent(&invocation.spec.agent);
        let context = ToolContext { invocation, settings };
        Box::pin(T::attach(self.arguments, context, boot))
    }
}

//! Library entry point: builds a runtime from the caller's own tools and models, without the user's configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use hermod_actors::{
    Defaults, Runtime,
    model::{ModelRef, PoolStrategy, RateLimits},
    port::{CallPolicy, DecisionHooks, FixedPrompt, NoHooks, SystemPromptBuilder, Tool},
};

use crate::{
    config::{Config, resolve},
    host::{self, HostDependencies, StartError, WorkspaceChoice},
    prompt::LayeredPrompt,
    provider::{
        CacheTtl, Credential, Deadlines, HttpProvider, ProviderConfig, anthropic_messages, chat_completions,
        codex_responses,
    },
    secret::Secret,
    store::redb::Durability,
    tool::{ExpectationVerifier, Settings},
};

/// The wire format of an endpoint's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ApiMode {
    /// Derived from the base URL by the rules of `providers.*.api_mode` in the configuration.
    #[default]
    Auto,
    /// OpenAI's Chat Completions, and compatible endpoints.
    ChatCompletions,
    /// Anthropic's Messages.
    AnthropicMessages,
    /// OpenAI's Responses.
    CodexResponses,
}

impl ApiMode {
    /// The wire format's name in the configuration; `None` if the base URL decides.
    const fn wire(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::ChatCompletions => Some(chat_completions::NAME),
            Self::AnthropicMessages => Some(anthropic_messages::NAME),
            Self::CodexResponses => Some(codex_responses::NAME),
        }
    }
}

/// Builds a runtime from the caller's own tools and models.
#[derive(Debug)]
pub struct Builder {
    state: PathBuf,
    workspace: PathBuf,
    prompt: Option<Arc<str>>,
    models: Vec<(ModelRef, ProviderConfig)>,
    tools: Vec<Arc<dyn Tool>>,
    hooks: Arc<dyn DecisionHooks>,
}

impl Builder {
    /// A builder of a runtime with its state in this folder. No other process may use the folder meanwhile.
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Self {
            state: state.into(),
            workspace: ".".into(),
            prompt: None,
            models: Vec::new(),
            tools: Vec::new(),
            hooks: Arc::new(NoHooks),
        }
    }

    /// Adds a model with a provider of its own; the base URL decides the wire format. A request that names no model
    /// uses the first model added.
    #[must_use]
    pub fn model(self, model: ModelRef, base_url: &str, key: Option<Secret>) -> Self {
        self.model_in(ApiMode::Auto, model, base_url, key)
    }

    /// Adds a model as [`Builder::model`] does, with the wire format given.
    #[must_use]
    pub fn model_in(
        mut self,
        api_mode: ApiMode,
        model: ModelRef,
        base_url: &str,
        key: Option<Secret>,
    ) -> Self {
        let (wire, base_url) = resolve(api_mode.wire(), None, base_url);
        let config = ProviderConfig {
            name: model.provider().to_string(),
            base_url,
            wire: wire.to_owned(),
            credentials: key.map(Credential::fixed).into_iter().collect(),
            pool: PoolStrategy::default(),
            limits: RateLimits::default(),
            cache: CacheTtl::default(),
            deadlines: Deadlines::default(),
        };
        self.models.push((model, config));
        self
    }

    /// Adds a tool. Every run may use it, unless its request lists other tools.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// The hooks that decide about calls. Default: none.
    #[must_use]
    pub fn hooks(mut self, hooks: Arc<dyn DecisionHooks>) -> Self {
        self.hooks = hooks;
        self
    }

    /// The folder in which tools work, separate from the state. Default: the current folder.
    #[must_use]
    pub fn workspace(mut self, workspace: impl Into<PathBuf>) -> Self {
        self.workspace = workspace.into();
        self
    }

    /// The system prompt. Default: Hermod's own.
    #[must_use]
    pub fn prompt(mut self, prompt: impl Into<Arc<str>>) -> Self {
        self.prompt = Some(prompt.into());
        self
    }

    /// Starts the runtime. Runs of an earlier process resume when their sessions are revived.
    pub async fn start(self) -> Result<Runtime, StartError> {
        let state = host::create_state_dir(&self.state)?;
        let workspace = host::resolve_workspace(WorkspaceChoice::Named(&self.workspace), &state)?;
        check_unique("tool", self.tools.iter().map(|tool| tool.spec().name.as_str()))?;
        check_unique("provider", self.models.iter().map(|(model, _)| &**model.provider()))?;
        let first = self.models.first().ok_or(StartError::NoModels)?.0.clone();
        let config = Config::load(&[], &BTreeMap::new())?;
        let mut spec = host::run_defaults::spec(&config, vec![first], None, &workspace);
        spec.tools = self.tools.iter().map(|tool| tool.spec().name.clone()).collect();
        let prompt: Arc<dyn SystemPromptBuilder> = match self.prompt {
            Some(prompt) => Arc::new(FixedPrompt(prompt)),
            None => Arc::new(LayeredPrompt::new(&config, &state)),
        };
        let mut providers = Vec::new();
        let calls = usize::try_from(config.provider_defaults.calls.0).unwrap_or(usize::MAX);
        for (model, endpoint) in self.models {
            let adapter = HttpProvider::new(endpoint)?;
            providers.push((Arc::clone(model.provider()), Arc::new(adapter) as _, calls));
        }
        let policy = Arc::new(host::checked_policy(&config, &state, None).await);
        // Without a runner it runs no commands.
        let settings = Settings { state: Some(state.clone()), ..Settings::default() };
        let dependencies = HostDependencies {
            policy: Arc::clone(&policy) as Arc<dyn CallPolicy>,
            hooks: self.hooks,
            journal: host::open(&state, Durability::Strict)?,
            state,
            providers,
            tools: self.tools,
            defaults: Defaults { spec, prompt },
        };
        let runtime = host::runtime(&config, dependencies).await?;
        runtime.set_verifier(Arc::new(ExpectationVerifier::new(settings, policy)));
        Ok(runtime)
    }
}

fn check_unique<'n>(what: &'static str, names: impl Iterator<Item = &'n str>) -> Result<(), StartError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(StartError::DuplicateName { what, name: name.to_owned() });
        }
    }
    Ok(())
}

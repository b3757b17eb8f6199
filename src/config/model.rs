//! The configuration as the program uses it. Each field is a key of `config/hermod.toml`.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use super::{
    auxiliary::Auxiliary,
    keys,
    layer::{Layer, Origin},
    models::ModelSection,
    prompt::{PromptSection, SkillsSection},
    values::{
        Address, BaseUrl, Caching, Chain, Count, Credential, Credentials, Durability, Flag, InDoubt, Keep,
        Level, Limit, Model, Percent, Pool, Size, Stored, Text, Wait, WireName,
    },
};
use crate::provider::{Cache, Deadlines};

/// All settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The model of a run that names none.
    pub model: Model,
    /// The chain behind it.
    pub fallback_providers: Chain,
    /// The chains of work beside the runs.
    pub auxiliary: Auxiliary,
    /// What a run may use up.
    pub agent: Agent,
    /// Further defaults of agents.
    pub agents: Agents,
    /// The configured providers, by name.
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderSection>,
    /// What a provider has that does not say otherwise.
    pub provider_defaults: ProviderDefaults,
    /// What the user says of models, by name or the beginning of names.
    #[serde(default)]
    pub models: BTreeMap<String, ModelSection>,
    /// When failed model calls are tried again.
    pub retry: Retry,
    /// For how long a model that fails is not asked.
    pub breaker: Breaker,
    /// How long the parts of the system prompt may be.
    pub prompt: PromptSection,
    /// Where skills are.
    pub skills: SkillsSection,
    /// The tools.
    pub tools: Tools,
    /// Keeping conversations short.
    pub compression: Compression,
    /// What agents remember.
    pub memory: Memory,
    /// Tasks for subagents.
    pub delegation: Delegation,
    /// What persons are asked.
    pub approvals: Approvals,
    /// What sessions take.
    pub sessions: Sessions,
    /// The store.
    pub store: Store,
    /// What `hermod gc` keeps.
    pub retention: Retention,
    /// The local Ollama.
    pub ollama: Ollama,
    /// Every setting with its origin.
    #[serde(skip)]
    pub settings: Layer,
    /// The files that were read.
    #[serde(skip)]
    pub files: Vec<PathBuf>,
    /// What the program knows of models.
    #[serde(skip)]
    pub known_models: BTreeMap<String, ModelSection>,
}

impl Config {
    /// Whether the user has set this key, in a file or a variable.
    pub fn is_set(&self, key: &str) -> bool {
        self.settings.get(key).is_some_and(|setting| setting.origin != Origin::Default)
    }

    /// For how long the vendor of this provider is to cache how requests begin.
    pub fn cache_of(&self, provider: &str) -> Cache {
        let section = self.providers.get(provider).and_then(|section| section.cache);
        section.unwrap_or(self.provider_defaults.cache).0
    }

    /// The configured providers, in the order of the file; those that only variables name come last.
    pub fn providers_in_order(&self) -> Vec<(&str, &ProviderSection)> {
        let line = |name: &str| {
            let of =
                self.settings.iter().filter(|(key, _)| keys::provider(key).is_some_and(|(n, _)| n == name));
            let lines = of.filter_map(|(_, setting)| match &setting.origin {
                Origin::File { line, .. } => Some(*line),
                Origin::Default | Origin::Variable(_) => None,
            });
            lines.min().unwrap_or(usize::MAX)
        };
        let mut providers: Vec<_> =
            self.providers.iter().map(|(name, section)| (name.as_str(), section)).collect();
        providers.sort_by_key(|(name, _)| line(name));
        providers
    }
}

/// `agent`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Iterations of one run.
    pub max_turns: Count,
    /// Output tokens of one call.
    pub max_tokens: Count,
    /// How much its models are to think.
    pub thinking: Level,
}

/// `agents`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agents {
    /// `agents.defaults`.
    pub defaults: AgentDefaults,
}

/// `agents.defaults`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDefaults {
    /// Active time of a run.
    pub timeout: Limit,
}

/// `providers.NAME`: what is absent is the vendor's, or that of [`ProviderDefaults`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderSection {
    /// The URL that the wire format's path is put behind.
    pub base_url: Option<BaseUrl>,
    /// The wire format.
    pub wire: Option<WireName>,
    /// Another name for it.
    pub api_mode: Option<WireName>,
    /// Where its key is.
    pub credential: Option<Credential>,
    /// Where its keys are, if it has several.
    pub credentials: Option<Credentials>,
    /// Which of them is used next.
    pub pool: Option<Pool>,
    /// How its access tokens are got; they stand before its keys.
    pub oauth: Option<OauthSection>,
    /// Requests that each of its accounts may make within a minute.
    pub requests_per_minute: Option<Count>,
    /// Tokens that each of its accounts may use up within a minute.
    pub tokens_per_minute: Option<Count>,
    /// The model, if none is named.
    pub model: Option<Model>,
    /// See [`ProviderDefaults::calls`].
    pub calls: Option<Count>,
    /// See [`ProviderDefaults::connect_timeout`].
    pub connect_timeout: Option<Wait>,
    /// See [`ProviderDefaults::first_event_timeout`].
    pub first_event_timeout: Option<Wait>,
    /// See [`ProviderDefaults::gap_timeout`].
    pub gap_timeout: Option<Wait>,
    /// See [`ProviderDefaults::call_timeout`].
    pub call_timeout: Option<Wait>,
    /// See [`ProviderDefaults::cache`].
    pub cache: Option<Caching>,
}

/// `providers.NAME.oauth`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OauthSection {
    /// Where access tokens are asked for.
    pub token_url: Option<BaseUrl>,
    /// Who asks.
    pub client_id: Option<Text>,
    /// What proves it.
    pub client_secret: Option<Stored>,
    /// What is exchanged for an access token.
    pub refresh_token: Option<Stored>,
    /// What is asked for, if not all that was granted.
    pub scope: Option<Text>,
}

/// `provider_defaults`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderDefaults {
    /// Calls that may be under way at once.
    pub calls: Count,
    /// To connect.
    pub connect_timeout: Wait,
    /// Until the answer begins.
    pub first_event_timeout: Wait,
    /// Between two pieces of the answer.
    pub gap_timeout: Wait,
    /// The whole call.
    pub call_timeout: Wait,
    /// For how long the vendor is to cache how requests begin.
    pub cache: Caching,
}

impl ProviderDefaults {
    /// How long each part of a call may take.
    pub fn deadlines(&self) -> Deadlines {
        Deadlines {
            connect: self.connect_timeout.0,
            first_event: self.first_event_timeout.0,
            gap: self.gap_timeout.0,
            call: self.call_timeout.0,
        }
    }

    /// These, where the section says nothing.
    #[must_use]
    pub fn under(self, section: &ProviderSection) -> Self {
        Self {
            calls: section.calls.unwrap_or(self.calls),
            connect_timeout: section.connect_timeout.unwrap_or(self.connect_timeout),
            first_event_timeout: section.first_event_timeout.unwrap_or(self.first_event_timeout),
            gap_timeout: section.gap_timeout.unwrap_or(self.gap_timeout),
            call_timeout: section.call_timeout.unwrap_or(self.call_timeout),
            cache: section.cache.unwrap_or(self.cache),
        }
    }
}

/// `retry`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The first pause.
    pub first_pause: Wait,
    /// The longest pause.
    pub longest_pause: Wait,
    /// Beyond this no pause reaches.
    pub deadline: Wait,
    /// Whether a refusal asks the next model.
    pub fallback_on_refusal: Flag,
    /// Attempts by what failed, with no other model to ask.
    pub attempts: Attempts,
    /// Likewise, with another one.
    pub fallback_after: Attempts,
    /// A longer wait that a provider asks for sends the call to the next model.
    pub short_wait: Wait,
    /// How long a call waits for known resets, with no other model to ask.
    pub wait_for_reset_max: Wait,
}

/// `breaker`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breaker {
    /// Failures in a row that open it.
    pub threshold: Count,
    /// How long it is open the first time.
    pub first_cooldown: Wait,
    /// The second time in a row.
    pub second_cooldown: Wait,
    /// Every further time.
    pub longest_cooldown: Wait,
    /// After the account was used up.
    pub quota_cooldown: Wait,
    /// After the provider did not know the model.
    pub not_found_cooldown: Wait,
}

/// `retry.attempts` and `retry.fallback_after`, by class of failure.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempts {
    /// The provider is asked too often.
    pub rate_limited: Count,
    /// It has too much to do.
    pub overloaded: Count,
    /// It fails inside.
    pub server: Count,
    /// It is late.
    pub timeout: Count,
    /// It cannot be reached.
    pub network: Count,
    /// Its answer breaks off.
    pub cut: Count,
    /// The task of the call dies.
    pub lost: Count,
}

/// `tools`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    /// Calls that may be under way at once.
    pub calls: Count,
    /// What is done about a call of which nobody knows what became.
    pub in_doubt: InDoubt,
    /// The tool `shell`.
    pub shell: Shell,
}

/// `tools.shell`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shell {
    /// Time of a command that the model sets no other for.
    pub timeout: Wait,
}

/// `compression`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compression {
    /// Whether there is any.
    pub enabled: Flag,
    /// Over which share of the model's window.
    pub trigger: Percent,
    /// The messages at the end that stay.
    pub protect_last_n: Count,
    /// Whether summaries are made ahead.
    pub ahead: Flag,
}

/// `memory`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Whether there is a tool that changes it.
    pub enabled: Flag,
    /// Characters of `MEMORY.md`.
    pub memory_chars: Count,
    /// Characters of `USER.md`.
    pub user_chars: Count,
}

/// `delegation`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegation {
    /// Whether there are any.
    pub enabled: Flag,
    /// How deep they may be.
    pub max_depth: Count,
    /// How many a run may have at once.
    pub max_children: Count,
    /// How many may live at once below a run that was submitted.
    pub max_live: Count,
    /// Iterations of one.
    pub max_iterations: Count,
    /// Whether they count on the runs above too.
    pub shared_iterations: Flag,
    /// For how long one may come to no result.
    pub progress: Limit,
}

/// `approvals`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approvals {
    /// For how long a person's answer is waited for.
    pub expiry: Wait,
}

/// `sessions`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sessions {
    /// For how long one that has nothing to do is kept in memory.
    pub idle: Wait,
}

/// `store`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// With less free space, no new run is accepted.
    pub reserve: Size,
}

/// `retention`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// How long sessions are kept, from their last record on.
    pub sessions: Keep,
    /// How long artifacts are kept, from the end of their run on.
    pub artifacts: Keep,
}

/// `ollama`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ollama {
    /// Where it is looked for.
    pub address: Address,
}

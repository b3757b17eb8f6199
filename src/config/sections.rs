//! The configuration as the program uses it. Each field is a key of `config/hermod.toml`.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

use super::{
    auxiliary::AuxiliarySections,
    keys,
    layer::{SettingLayer, SettingOrigin},
    model_section::ModelSection,
    prompt::{PromptSection, SkillsSection},
    values::{
        BaseUrl, CacheTtlName, Flag, InDoubtActionName, ModelChain, NonEmptyText, OptionalAddress,
        OptionalByteSize, OptionalDuration, OptionalModelName, Percent, PoolStrategyName, PositiveCount,
        PositiveDuration, RetentionPeriod, SecretRef, SecretRefs, StaticSecretRef, StoreDurability,
        ThinkingLevelName, WireName,
    },
};
use crate::provider::{CacheTtl, Deadlines};

/// All settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The model of a run that names none.
    pub model: OptionalModelName,
    /// The chain behind it.
    pub fallback_providers: ModelChain,
    /// The chains of work beside the runs.
    pub auxiliary: AuxiliarySections,
    /// What a run may use up.
    pub agent: AgentSection,
    /// Further defaults of agents.
    pub agents: AgentsSection,
    /// The configured providers, by name.
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderSection>,
    /// What a provider has that does not say otherwise.
    pub provider_defaults: ProviderDefaults,
    /// What the user says of models, by name or the beginning of names.
    #[serde(default)]
    pub models: BTreeMap<String, ModelSection>,
    /// When failed model calls are tried again.
    pub retry: RetrySection,
    /// For how long a model that fails is not asked.
    pub breaker: BreakerSection,
    /// How long the parts of the system prompt may be.
    pub prompt: PromptSection,
    /// Where skills are.
    pub skills: SkillsSection,
    /// The tools.
    pub tools: ToolsSection,
    /// Keeping conversations short.
    pub compression: CompactionSection,
    /// What agents remember.
    pub memory: MemorySection,
    /// Tasks for subagents.
    pub delegation: DelegationSection,
    /// What persons are asked.
    pub approvals: ApprovalsSection,
    /// What sessions take.
    pub sessions: SessionsSection,
    /// The store.
    pub store: StoreSection,
    /// What `hermod gc` keeps.
    pub retention: RetentionSection,
    /// The local Ollama.
    pub ollama: OllamaSection,
    /// Every setting with its origin.
    #[serde(skip)]
    pub settings: SettingLayer,
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
        self.settings.get(key).is_some_and(|setting| setting.origin != SettingOrigin::Default)
    }

    /// For how long the vendor of this provider is to cache how requests begin.
    pub fn cache_of(&self, provider: &str) -> CacheTtl {
        let section = self.providers.get(provider).and_then(|section| section.cache);
        section.unwrap_or(self.provider_defaults.cache).0
    }

    /// The configured providers, in the order of the file; those that only variables name come last.
    pub fn providers_in_order(&self) -> Vec<(&str, &ProviderSection)> {
        let line = |name: &str| {
            let of =
                self.settings.iter().filter(|(key, _)| keys::provider(key).is_some_and(|(n, _)| n == name));
            let lines = of.filter_map(|(_, setting)| match &setting.origin {
                SettingOrigin::File { line, .. } => Some(*line),
                SettingOrigin::Default | SettingOrigin::Variable(_) => None,
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
pub struct AgentSection {
    /// Iterations of one run.
    pub max_turns: PositiveCount,
    /// Output tokens of one call.
    pub max_tokens: PositiveCount,
    /// How much its models are to think.
    pub thinking: ThinkingLevelName,
}

/// `agents`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentsSection {
    /// `agents.defaults`.
    pub defaults: AgentDefaultsSection,
}

/// `agents.defaults`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDefaultsSection {
    /// Active time of a run.
    pub timeout: OptionalDuration,
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
    pub credential: Option<SecretRef>,
    /// Where its keys are, if it has several.
    pub credentials: Option<SecretRefs>,
    /// Which of them is used next.
    pub pool: Option<PoolStrategyName>,
    /// How its access tokens are got; they stand before its keys.
    pub oauth: Option<OauthSection>,
    /// Requests that each of its accounts may make within a minute.
    pub requests_per_minute: Option<PositiveCount>,
    /// Tokens that each of its accounts may use up within a minute.
    pub tokens_per_minute: Option<PositiveCount>,
    /// The model, if none is named.
    pub model: Option<OptionalModelName>,
    /// See [`ProviderDefaults::calls`].
    pub calls: Option<PositiveCount>,
    /// See [`ProviderDefaults::connect_timeout`].
    pub connect_timeout: Option<PositiveDuration>,
    /// See [`ProviderDefaults::first_event_timeout`].
    pub first_event_timeout: Option<PositiveDuration>,
    /// See [`ProviderDefaults::gap_timeout`].
    pub gap_timeout: Option<PositiveDuration>,
    /// See [`ProviderDefaults::call_timeout`].
    pub call_timeout: Option<PositiveDuration>,
    /// See [`ProviderDefaults::cache`].
    pub cache: Option<CacheTtlName>,
}

/// `providers.NAME.oauth`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OauthSection {
    /// Where access tokens are asked for.
    pub token_url: Option<BaseUrl>,
    /// Who asks.
    pub client_id: Option<NonEmptyText>,
    /// What proves it.
    pub client_secret: Option<StaticSecretRef>,
    /// What is exchanged for an access token.
    pub refresh_token: Option<StaticSecretRef>,
    /// What is asked for, if not all that was granted.
    pub scope: Option<NonEmptyText>,
}

/// `provider_defaults`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderDefaults {
    /// Calls that may be under way at once.
    pub calls: PositiveCount,
    /// To connect.
    pub connect_timeout: PositiveDuration,
    /// Until the answer begins.
    pub first_event_timeout: PositiveDuration,
    /// Between two pieces of the answer.
    pub gap_timeout: PositiveDuration,
    /// The whole call.
    pub call_timeout: PositiveDuration,
    /// For how long the vendor is to cache how requests begin.
    pub cache: CacheTtlName,
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
    pub fn overridden_by(self, section: &ProviderSection) -> Self {
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
pub struct RetrySection {
    /// The first pause.
    pub first_pause: PositiveDuration,
    /// The longest pause.
    pub longest_pause: PositiveDuration,
    /// Beyond this no pause reaches.
    pub deadline: PositiveDuration,
    /// Whether a refusal asks the next model.
    pub fallback_on_refusal: Flag,
    /// Attempts by what failed, with no other model to ask.
    pub attempts: AttemptsSection,
    /// Likewise, with another one.
    pub fallback_after: AttemptsSection,
    /// A longer wait that a provider asks for sends the call to the next model.
    pub short_wait: PositiveDuration,
    /// How long a call waits for known resets, with no other model to ask.
    pub wait_for_reset_max: PositiveDuration,
}

/// `breaker`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakerSection {
    /// Failures in a row that open it.
    pub threshold: PositiveCount,
    /// How long it is open the first time.
    pub first_cooldown: PositiveDuration,
    /// The second time in a row.
    pub second_cooldown: PositiveDuration,
    /// Every further time.
    pub longest_cooldown: PositiveDuration,
    /// After the account was used up.
    pub quota_cooldown: PositiveDuration,
    /// After the provider did not know the model.
    pub not_found_cooldown: PositiveDuration,
}

/// `retry.attempts` and `retry.fallback_after`, by class of failure.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptsSection {
    /// The provider is asked too often.
    pub rate_limited: PositiveCount,
    /// It has too much to do.
    pub overloaded: PositiveCount,
    /// It fails inside.
    pub server: PositiveCount,
    /// It is late.
    pub timeout: PositiveCount,
    /// It cannot be reached.
    pub network: PositiveCount,
    /// Its answer breaks off.
    pub cut: PositiveCount,
    /// The task of the call dies.
    pub lost: PositiveCount,
}

/// `tools`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolsSection {
    /// Calls that may be under way at once.
    pub calls: PositiveCount,
    /// What is done about a call of which nobody knows what became.
    pub in_doubt: InDoubtActionName,
    /// The tool `shell`.
    pub shell: ShellSection,
}

/// `tools.shell`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellSection {
    /// Time of a command that the model sets no other for.
    pub timeout: PositiveDuration,
}

/// `compression`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactionSection {
    /// Whether there is any.
    pub enabled: Flag,
    /// Over which share of the model's window.
    pub trigger: Percent,
    /// The messages at the end that stay.
    pub protect_last_n: PositiveCount,
    /// Whether summaries are made ahead.
    pub ahead: Flag,
}

/// `memory`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySection {
    /// Whether there is a tool that changes it.
    pub enabled: Flag,
    /// Characters of `MEMORY.md`.
    pub memory_chars: PositiveCount,
    /// Characters of `USER.md`.
    pub user_chars: PositiveCount,
}

/// `delegation`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegationSection {
    /// Whether there are any.
    pub enabled: Flag,
    /// How deep they may be.
    pub max_depth: PositiveCount,
    /// How many a run may have at once.
    pub max_children: PositiveCount,
    /// How many may live at once below a run that was submitted.
    pub max_live: PositiveCount,
    /// Iterations of one.
    pub max_iterations: PositiveCount,
    /// Whether they count on the runs above too.
    pub shared_iterations: Flag,
    /// For how long one may come to no result.
    pub progress: OptionalDuration,
}

/// `approvals`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsSection {
    /// For how long a person's answer is waited for.
    pub expiry: PositiveDuration,
}

/// `sessions`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionsSection {
    /// For how long one that has nothing to do is kept in memory.
    pub idle: PositiveDuration,
}

/// `store`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSection {
    /// What an acknowledged write survives.
    pub durability: StoreDurability,
    /// With less free space, no new run is accepted.
    pub reserve: OptionalByteSize,
}

/// `retention`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSection {
    /// How long sessions are kept, from their last record on.
    pub sessions: RetentionPeriod,
    /// How long artifacts are kept, from the end of their run on.
    pub artifacts: RetentionPeriod,
}

/// `ollama`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OllamaSection {
    /// Where it is looked for.
    pub address: OptionalAddress,
}

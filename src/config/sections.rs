//! The typed configuration: [`Config`], and the sections that have no file of their own. Each field is a key of
//! `config/hermod.toml`, except those that serde skips. Also the values of a provider, merged with the defaults.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use hermod_actors::model::AgentName;
use serde::Deserialize;

use super::{
    agent_sections::{AgentSection, AgentsSection},
    attachments_section::AttachmentsSection,
    auxiliary::AuxiliarySection,
    channels_section::ChannelSection,
    hooks_section::HookSection,
    inbound_section::InboundSection,
    keys,
    lanes_section::LanesSection,
    layer::{SettingLayer, SettingOrigin},
    limits_section::LimitsSection,
    model_section::ModelSection,
    queue_section::QueueSection,
    replies_section::RepliesSection,
    sandbox_section::SandboxSection,
    service_section::ServiceSection,
    targets_section::{DeliverySection, TargetSection},
    telemetry_section::TelemetrySection,
    values::{
        AbsolutePaths, ApproverName, BaseUrl, CacheTtlName, Flag, InDoubtActionName, ModelChain,
        NonEmptyText, OptionalAddress, OptionalByteSize, OptionalDuration, OptionalFolder, OptionalModelName,
        OptionalText, Percent, PolicyModeName, PoolStrategyName, PositiveCount, PositiveDuration,
        PromptBytes, RetentionPeriod, RuleList, SecretRef, SecretRefs, StaticSecretRef, StoreDurability,
        ToolPatterns, WireName,
    },
};
use crate::{
    provider::{CacheTtl, Deadlines},
    schedule::ScheduleWords,
    secret::Reference,
};

/// All settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The model of a run that names none.
    pub model: OptionalModelName,
    /// The fallback models after `model`, in order.
    pub fallback_providers: ModelChain,
    /// The chains of auxiliary jobs, by the job's name.
    pub auxiliary: BTreeMap<String, AuxiliarySection>,
    /// Limits and thinking level of a run.
    pub agent: AgentSection,
    /// Replies to chat surfaces.
    pub replies: RepliesSection,
    /// Limits of all runs together.
    pub limits: LimitsSection,
    /// How many runs may be under way at once.
    pub lanes: LanesSection,
    /// How messages to a session queue.
    pub queue: QueueSection,
    /// Files that models may send.
    pub attachments: AttachmentsSection,
    /// Further defaults of agents.
    pub agents: AgentsSection,
    /// The configured providers, by name.
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderSection>,
    /// Defaults for all providers.
    pub provider_defaults: ProviderDefaults,
    /// The user's facts about models, by name or prefix.
    #[serde(default)]
    pub models: BTreeMap<String, ModelSection>,
    /// Retries and failover of model calls.
    pub retry: RetrySection,
    /// Circuit breakers of models and endpoints.
    pub breaker: BreakerSection,
    /// Size limits of the system prompt.
    pub prompt: PromptSection,
    /// Folders with skills.
    pub skills: SkillsSection,
    /// Settings of tools.
    pub tools: ToolsSection,
    /// The sandbox of shell commands.
    pub sandbox: SandboxSection,
    /// Compaction of conversations.
    pub compression: CompactionSection,
    /// The agents' memory files.
    pub memory: MemorySection,
    /// Limits of subagents.
    pub delegation: DelegationSection,
    /// Rules for tool calls.
    pub policy: PolicySection,
    /// Approvals by a person.
    pub approvals: ApprovalsSection,
    /// Sessions in memory.
    pub sessions: SessionsSection,
    /// Settings of the store.
    pub store: StoreSection,
    /// What `hermod gc` retains.
    pub retention: RetentionSection,
    /// The HTTP service.
    pub service: ServiceSection,
    /// The export of traces.
    pub telemetry: TelemetrySection,
    /// Where messages and results are delivered, by name.
    #[serde(default)]
    pub targets: BTreeMap<String, TargetSection>,
    /// Defaults for all targets.
    pub delivery: DeliverySection,
    /// The hooks, by name.
    #[serde(default)]
    pub hooks: BTreeMap<String, HookSection>,
    /// The webhooks of other services, by name.
    #[serde(default)]
    pub inbound: BTreeMap<String, InboundSection>,
    /// The schedules, by name.
    #[serde(default)]
    pub schedules: BTreeMap<String, ScheduleWords>,
    /// The chats, by name.
    #[serde(default)]
    pub channels: BTreeMap<String, ChannelSection>,
    /// The local Ollama.
    pub ollama: OllamaSection,
    /// Every setting with its origin.
    #[serde(skip)]
    pub settings: SettingLayer,
    /// The files that were read.
    #[serde(skip)]
    pub files: Vec<PathBuf>,
    /// The embedded facts about models.
    #[serde(skip)]
    pub known_models: BTreeMap<String, ModelSection>,
    /// The agent that this is the configuration of.
    #[serde(skip)]
    pub agent_name: AgentName,
    /// The values of the agent's section, by the keys that they stand for.
    #[serde(skip)]
    pub(super) overlay: SettingLayer,
    /// The configurations of the other agents.
    #[serde(skip)]
    pub(super) others: BTreeMap<AgentName, Arc<Self>>,
}

impl Config {
    /// True if the user has set this key, in a file or a variable, for all agents or this one.
    pub fn is_set(&self, key: &str) -> bool {
        self.origin_of(key).is_some_and(|origin| *origin != SettingOrigin::Default)
    }

    /// The cache lifetime of this provider: its own, or the default.
    pub fn cache_of(&self, provider: &str) -> CacheTtl {
        let section = self.providers.get(provider).and_then(|section| section.cache);
        section.unwrap_or(self.provider_defaults.cache).0
    }

    /// The references to all secrets: those of the sections `providers`, `targets`, `hooks`, `inbound` and `channels`, and
    /// the headers of the export of traces.
    pub fn secret_references(&self) -> impl Iterator<Item = &Reference> {
        let of_providers = self.providers.values().flat_map(|section| {
            let oauth = section.oauth.iter().flat_map(|oauth| [&oauth.client_secret, &oauth.refresh_token]);
            let oauth = oauth.flatten().map(|secret| &secret.0);
            let several = section.credentials.iter().flat_map(|secrets| &secrets.0);
            section.credential.iter().map(|secret| &secret.0).chain(several).chain(oauth)
        });
        let of_targets = self.targets.values().flat_map(TargetSection::references);
        let of_hooks = self.hooks.values().filter_map(|hook| hook.bearer.as_ref().map(|bearer| &bearer.0));
        let of_inbound = self.inbound.values().flat_map(InboundSection::references);
        let of_channels = self.channels.values().filter_map(|channel| Some(&channel.token.as_ref()?.0));
        let of_outside = of_targets.chain(of_hooks).chain(of_inbound).chain(of_channels);
        of_providers.chain(&self.telemetry.otlp_headers.0).chain(of_outside)
    }

    /// The configured providers in the order of the file. Those that only variables set come last.
    pub fn providers_in_order(&self) -> Vec<(&str, &ProviderSection)> {
        let line = |name: &str| {
            let settings =
                self.settings.iter().filter(|(key, _)| keys::provider(key).is_some_and(|(n, _)| n == name));
            let lines = settings.filter_map(|(_, setting)| match &setting.origin {
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

/// The section `providers.NAME`. An absent value is the vendor's, or that of [`ProviderDefaults`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderSection {
    /// The URL before the wire format's path.
    pub base_url: Option<BaseUrl>,
    /// The wire format.
    pub wire: Option<WireName>,
    /// Alias of `wire`.
    pub api_mode: Option<WireName>,
    /// Reference to the API key.
    pub credential: Option<SecretRef>,
    /// References to several API keys.
    pub credentials: Option<SecretRefs>,
    /// Strategy that chooses among them.
    pub pool: Option<PoolStrategyName>,
    /// OAuth access tokens, preferred to the API keys.
    pub oauth: Option<OauthSection>,
    /// Limit of requests per minute and credential.
    pub requests_per_minute: Option<PositiveCount>,
    /// Limit of tokens per minute and credential.
    pub tokens_per_minute: Option<PositiveCount>,
    /// The model of a run that names only the provider.
    pub model: Option<OptionalModelName>,
    /// Overrides [`ProviderDefaults::calls`].
    pub calls: Option<PositiveCount>,
    /// Overrides [`ProviderDefaults::connect_timeout`].
    pub connect_timeout: Option<PositiveDuration>,
    /// Overrides [`ProviderDefaults::first_event_timeout`].
    pub first_event_timeout: Option<PositiveDuration>,
    /// Overrides [`ProviderDefaults::gap_timeout`].
    pub gap_timeout: Option<PositiveDuration>,
    /// Overrides [`ProviderDefaults::call_timeout`].
    pub call_timeout: Option<PositiveDuration>,
    /// Overrides [`ProviderDefaults::cache`].
    pub cache: Option<CacheTtlName>,
}

/// The section `providers.NAME.oauth`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OauthSection {
    /// The token endpoint.
    pub token_url: Option<BaseUrl>,
    /// The client id.
    pub client_id: Option<NonEmptyText>,
    /// Reference to the client secret, if the client has one.
    pub client_secret: Option<StaticSecretRef>,
    /// Reference to the refresh token.
    pub refresh_token: Option<StaticSecretRef>,
    /// The requested scope; absent means all that was granted.
    pub scope: Option<NonEmptyText>,
}

/// The section `provider_defaults`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderDefaults {
    /// Limit of concurrent calls.
    pub calls: PositiveCount,
    /// Time limit of connecting.
    pub connect_timeout: PositiveDuration,
    /// Time limit until the answer begins.
    pub first_event_timeout: PositiveDuration,
    /// Time limit between two pieces of the answer.
    pub gap_timeout: PositiveDuration,
    /// Time limit of the whole call.
    pub call_timeout: PositiveDuration,
    /// Cache lifetime of a request's prefix at the vendor.
    pub cache: CacheTtlName,
}

impl ProviderDefaults {
    /// The time limits of a call's parts.
    pub fn deadlines(&self) -> Deadlines {
        Deadlines {
            connect: self.connect_timeout.0,
            first_event: self.first_event_timeout.0,
            gap: self.gap_timeout.0,
            call: self.call_timeout.0,
        }
    }

    /// The defaults, overridden by the values that the section sets.
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

/// The section `retry`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySection {
    /// The first pause between attempts.
    pub first_pause: PositiveDuration,
    /// The longest pause between attempts.
    pub longest_pause: PositiveDuration,
    /// Active time from the first attempt beyond which no pause extends. A wait for a known reset may.
    pub deadline: PositiveDuration,
    /// Whether a refusal fails over to the next model.
    pub fallback_on_refusal: Flag,
    /// Attempts per failure class without another model to fail over to.
    pub attempts: AttemptsSection,
    /// Attempts per failure class before failing over to another model. Also the limit for failures of an endpoint
    /// while no call of the run was answered.
    pub fallback_after: AttemptsSection,
    /// A requested wait above this fails over to the next model.
    pub short_wait: PositiveDuration,
    /// Limit of the wait for known resets without another model.
    pub wait_for_reset_max: PositiveDuration,
}

/// The section `breaker`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakerSection {
    /// Consecutive failures that open the breaker.
    pub threshold: PositiveCount,
    /// Cooldown of the first opening.
    pub first_cooldown: PositiveDuration,
    /// Cooldown of the second opening in a row.
    pub second_cooldown: PositiveDuration,
    /// Cooldown of every further opening.
    pub longest_cooldown: PositiveDuration,
    /// Cooldown after an exhausted quota.
    pub quota_cooldown: PositiveDuration,
    /// Cooldown after the provider did not know the model.
    pub not_found_cooldown: PositiveDuration,
}

/// The sections `retry.attempts` and `retry.fallback_after`: attempts by failure class.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptsSection {
    /// The provider limits the rate of requests.
    pub rate_limited: PositiveCount,
    /// The provider is overloaded.
    pub overloaded: PositiveCount,
    /// The provider has an internal error.
    pub server: PositiveCount,
    /// The provider exceeds a time limit.
    pub timeout: PositiveCount,
    /// The provider cannot be reached.
    pub network: PositiveCount,
    /// The answer breaks off.
    pub cut: PositiveCount,
    /// The task of the call crashes.
    pub lost: PositiveCount,
}

/// The section `prompt`: its identity, and size limits of its parts. `src/prompt` builds it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptSection {
    /// What the agent is, in place of `SOUL.md`.
    pub identity: OptionalText,
    /// The file with that text.
    pub identity_file: OptionalFolder,
    /// Bytes of the identity.
    pub identity_bytes: PromptBytes,
    /// Bytes of the guidance on tools.
    pub guidance_bytes: PromptBytes,
    /// Bytes of the list of skills.
    pub skills_bytes: PromptBytes,
    /// Bytes of one context file.
    pub context_file_bytes: PromptBytes,
    /// Bytes of all context files together.
    pub context_bytes: PromptBytes,
}

/// The section `skills`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillsSection {
    /// Whether agents have skills.
    pub enabled: Flag,
    /// Folders with skills, besides those of the state directory and the workspace.
    pub paths: AbsolutePaths,
}

/// The section `tools`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolsSection {
    /// The tools that runs have.
    pub include: ToolPatterns,
    /// Those of them that runs do not have.
    pub exclude: ToolPatterns,
    /// Limit of concurrent tool calls of each class.
    pub calls: PositiveCount,
    /// Policy for calls in doubt.
    pub in_doubt: InDoubtActionName,
    /// Settings of the tool `shell`.
    pub shell: ShellSection,
}

/// The section `tools.shell`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellSection {
    /// Time limit of a command if the model sets none.
    pub timeout: PositiveDuration,
}

/// The section `compression`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactionSection {
    /// Whether conversations are compacted.
    pub enabled: Flag,
    /// Share of the context window above which compaction starts.
    pub trigger: Percent,
    /// Number of last messages that stay unchanged, if they are short enough.
    pub protect_last_n: PositiveCount,
    /// Whether summaries are made ahead, during the run.
    pub ahead: Flag,
}

/// The section `memory`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySection {
    /// Whether agents have the tool that changes their memory.
    pub enabled: Flag,
    /// Limit of `MEMORY.md`, in characters.
    pub memory_chars: PositiveCount,
    /// Limit of `USER.md`, in characters.
    pub user_chars: PositiveCount,
}

/// The section `delegation`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegationSection {
    /// Whether runs may start subagents.
    pub enabled: Flag,
    /// Limit of nesting; 1 allows a run's own subagents only.
    pub max_depth: PositiveCount,
    /// Limit of a run's concurrent subagents.
    pub max_children: PositiveCount,
    /// Limit of concurrent subagents at all depths below a submitted run.
    pub max_live: PositiveCount,
    /// Limit of iterations of one subagent.
    pub max_iterations: PositiveCount,
    /// Whether a subagent's iterations also count on the runs above it.
    pub shared_iterations: Flag,
    /// Active time without an answer of its model or a call's result, after which a subagent is ended.
    pub progress: OptionalDuration,
}

/// The section `policy`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySection {
    /// What happens to calls that no rule names.
    pub mode: PolicyModeName,
    /// Calls that never run.
    pub deny: RuleList,
    /// Calls that run without an approval.
    pub allow: RuleList,
    /// Calls that need an approval.
    pub ask: RuleList,
}

/// The section `approvals`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsSection {
    /// Whether a person answers.
    pub approver: ApproverName,
    /// Time that a person has to answer.
    pub expiry: PositiveDuration,
}

/// The section `sessions`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionsSection {
    /// Idle time before a session is passivated.
    pub idle: PositiveDuration,
}

/// The section `store`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSection {
    /// What an acknowledged write survives.
    pub durability: StoreDurability,
    /// Reserve of free disk space, below which no new run is accepted.
    pub reserve: OptionalByteSize,
}

/// The section `retention`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSection {
    /// Retention of sessions, from their last record on.
    pub sessions: RetentionPeriod,
    /// Retention of artifacts, from the end of their run on.
    pub artifacts: RetentionPeriod,
}

/// The section `ollama`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OllamaSection {
    /// Address of the local Ollama, if one is sought.
    pub address: OptionalAddress,
}

//! The configuration: the embedded defaults, overridden by the user's file, overridden by the environment.
//! `sections.rs` has the type, `load.rs` merges and checks. Pure except for `file.rs`.

mod agent_sections;
mod agents;
mod attachments_section;
mod auxiliary;
mod channels_section;
mod error;
mod file;
mod hooks_section;
mod inbound_section;
mod keys;
mod lanes_section;
mod layer;
mod limits_section;
mod load;
mod mail_keys;
mod model_section;
mod queue_section;
mod replies_section;
mod sandbox_section;
mod schedules_section;
mod sections;
mod service_section;
mod targets_section;
mod telemetry_section;
mod values;
mod variables;
mod vendors;
mod wires;

pub use agent_sections::{AgentDefaultsSection, AgentSection, AgentsSection, BudgetSection};
pub use auxiliary::{AuxiliarySection, COMPRESSION, MEMORY_FLUSH, TITLE, VISION, auxiliary_chain, is_named};
pub use channels_section::{CHANNEL_TARGET, ChannelKind, ChannelSection, StreamMode};
pub use error::{ConfigErrors, SettingError, redacted, redacted_toml};
pub use file::UserFile;
pub use hooks_section::{HookNames, HookSection};
pub use inbound_section::{EventItems, InboundSection, SignatureName, TemplateText};
pub use lanes_section::LanesSection;
pub use layer::{Setting, SettingLayer, SettingOrigin};
pub use limits_section::LimitsSection;
pub use load::{ConfigFile, EMBEDDED};
pub use mail_keys::{MailAddress, MailAddresses, MailTls, MailTlsName, Port};
pub use model_section::{EMBEDDED_MODELS, ModelSection, PriceSection};
pub use queue_section::QueueSection;
pub use replies_section::{BlockBreakName, ReasoningModeName, RepliesSection, VerbosityName};
pub use sandbox_section::{
    NetworkSetting, SandboxLimitsSection, SandboxModeName, SandboxSection, WorkspaceScope,
};
pub use sections::{
    AttemptsSection, BreakerSection, CompactionSection, Config, DelegationSection, MemorySection,
    OauthSection, OllamaSection, PolicySection, PromptSection, ProviderDefaults, ProviderSection,
    RetentionSection, RetrySection, SessionsSection, ShellSection, SkillsSection, StoreSection, ToolsSection,
};
pub use service_section::{HostNames, ListenAddress, PemPath, ServiceSection};
pub use targets_section::{DeliverySection, TargetKind, TargetKindName, TargetSection};
pub use telemetry_section::{OtlpEndpoint, OtlpHeaders, TelemetrySection};
pub use values::{
    AbsolutePaths, ApproverName, BaseUrl, CacheTtlName, Flag, InDoubtActionName, ModelChain, NonEmptyText,
    OptionalAddress, OptionalByteSize, OptionalCount, OptionalDollars, OptionalDuration, OptionalFolder,
    OptionalModelName, OptionalText, Percent, PolicyModeName, PoolStrategyName, PositiveCount,
    PositiveDuration, PromptBytes, RetentionPeriod, RuleList, SecretRef, SecretRefs, StaticSecretRef,
    StoreDurability, TargetNames, ThinkingLevelName, ThinkingLevelNames, ThinkingStyleName, TokenPrice,
    ToolPattern, ToolPatterns, WireName,
};
pub use vendors::{OLLAMA, VENDORS, Vendor, is_known, vendor_at};
pub use wires::resolve;

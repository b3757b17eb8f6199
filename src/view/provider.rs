//! Views of providers: the configured ones, and the results of test calls. Also of models.

use hermod_actors::model::{CredentialId, Failure as CallFailure, PoolStrategy};
use serde::Serialize;

use crate::config::ModelSection;

/// The result of a test call to a provider: `{name, model, credential, from, outcome, took_ms, message}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProviderProbeView {
    /// The provider's name.
    pub name: String,
    /// The model that was called; `None` if none is known.
    pub model: Option<String>,
    /// The credential, counted from 0; `None` if no call was made.
    pub credential: Option<CredentialId>,
    /// The source of the credential.
    pub from: Option<String>,
    /// `answered`, `not_asked` if the provider cannot be called, or the class of the failure.
    pub outcome: &'static str,
    /// Duration of the call in milliseconds; `None` if no call was made.
    pub took_ms: Option<u64>,
    /// Why there is no answer; `None` if there is one.
    pub message: Option<String>,
}

impl ProviderProbeView {
    /// A provider that cannot be called, with the reason.
    pub fn not_called(name: &str, model: Option<&str>, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            model: model.map(str::to_owned),
            credential: None,
            from: None,
            outcome: "not_asked",
            took_ms: None,
            message: Some(reason),
        }
    }

    /// A call to a model of a provider, and its end.
    pub fn called(name: &str, model: &str, end: Result<(), CallFailure>) -> Self {
        let (outcome, message) = match end {
            Ok(()) => (Self::ANSWERED, None),
            Err(failure) => (failure.class.name(), Some(failure.message)),
        };
        Self { outcome, message, ..Self::not_called(name, Some(model), String::new()) }
    }

    const ANSWERED: &str = "answered";

    /// True if the call was answered.
    pub fn is_answered(&self) -> bool {
        self.outcome == Self::ANSWERED
    }
}

/// A provider that is configured or found in the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfiguredProviderView {
    /// The provider's name.
    pub name: String,
    /// The base URL, without credentials.
    pub base_url: String,
    /// The wire format.
    pub wire: &'static str,
    /// The credentials, by reference.
    pub credentials: Vec<CredentialView>,
    /// How a credential is chosen.
    pub pool: PoolStrategy,
    /// Requests per minute that each credential may use; `None` without a limit.
    pub requests_per_minute: Option<u32>,
    /// Tokens per minute that each credential may use; `None` without a limit.
    pub tokens_per_minute: Option<u64>,
    /// The default model; `None` without one.
    pub model: Option<String>,
    /// The context window of the default model, in tokens; `None` if it is not known.
    pub window: Option<u64>,
    /// Whether the price of the default model is known.
    pub priced: bool,
    /// Limit of concurrent calls.
    pub calls: u32,
    /// Where the provider was found.
    pub from: &'static str,
}

/// A reference to a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CredentialView {
    /// Where the credential is read, such as `env:NAME`.
    pub from: String,
    /// Why it cannot be read; `None` if it can.
    pub error: Option<String>,
}

/// The known facts of one source about a model: `{model, from, …of the section}`; `null` is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelView {
    /// The name, or the beginning of names.
    pub model: String,
    /// The source: `config`, `program`, `refusal` or `list`.
    pub from: &'static str,
    /// The facts.
    #[serde(flatten)]
    pub section: ModelSection,
}

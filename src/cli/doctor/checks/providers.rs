//! Checks of the model providers: whether there is one for the configured models, and whether its keys are accepted.

use std::{path::Path, sync::Arc};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use hermod_actors::model::{CredentialId, Failure, FailureClass, ModelRef};

use super::config_of;
use crate::{
    cli::{
        doctor::check::{Examination, Finding},
        providers::{MAX_PROBE_TOKENS, probe},
    },
    config::{Config, VENDORS, vendor_at},
    discovery::{DiscoveredProvider, Variables},
    host::{OllamaProbe, check_config, discover},
    model_catalogue,
    provider::HttpProvider,
};

/// Whether the models that the configuration names have a provider.
pub(in crate::cli::doctor) fn models(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let config = match config_of(examination) {
            Ok(config) => config,
            Err(skipped) => return skipped,
        };
        let providers = providers(config, examination).await;
        if providers.is_empty() {
            let keys: Vec<_> = VENDORS.iter().map(|vendor| vendor.key).collect();
            let value = "there is no model provider";
            let remedy = format!(
                "put a key into the environment ({}), or start a local Ollama; then `hermod init --yes` writes it down",
                keys.join(", ")
            );
            return vec![Finding::fail("models", value, remedy)];
        }
        let state = state_of(examination);
        let names: Vec<_> = providers.iter().map(|provider| provider.name.to_string()).collect();
        vec![match check_config(config, &examination.variables, (&providers, state)) {
            Ok(()) => Finding::ok("models", format!("providers: {}", names.join(", "))),
            Err(error) => {
                let remedy = "`hermod providers list` shows what there is; name one of these, or configure it";
                Finding::fail("models", error.to_string(), remedy)
            }
        }]
    }
    .boxed()
}

/// Whether the keys of the providers are accepted.
pub(in crate::cli::doctor) fn keys(examination: &Examination) -> BoxFuture<'_, Vec<Finding>> {
    async move {
        let config = match config_of(examination) {
            Ok(config) => config,
            Err(skipped) => return skipped,
        };
        if examination.is_offline {
            return vec![Finding::skipped("keys", "--offline: no provider is asked")];
        }
        let providers = providers(config, examination).await;
        let tests = providers.iter().map(|provider| test_provider(provider, config, examination));
        let findings: Vec<Finding> = join_all(tests).await.into_iter().flatten().collect();
        if findings.is_empty() { vec![Finding::skipped("keys", "there is no provider")] } else { findings }
    }
    .boxed()
}

/// Where refresh tokens are kept; nowhere without a state directory.
fn state_of(examination: &Examination) -> &Path {
    examination.state.as_deref().unwrap_or(Path::new("/nonexistent"))
}

async fn providers(config: &Config, examination: &Examination) -> Vec<DiscoveredProvider> {
    let probe = if examination.is_offline { OllamaProbe::Never } else { OllamaProbe::of(config) };
    discover(config, &examination.variables, probe).await
}

/// Tests each key of a provider.
async fn test_provider(
    provider: &DiscoveredProvider,
    config: &Config,
    examination: &Examination,
) -> Vec<Finding> {
    let name = provider.name.to_string();
    let state = state_of(examination);
    let adapter = match adapter(provider, &examination.variables, state) {
        Ok(adapter) => adapter,
        Err(error) => {
            return vec![Finding::fail(name, error, "`hermod providers list` shows where it is set")];
        }
    };
    let sources = provider.account.credential_report(&examination.variables);
    let mut findings = Vec::new();
    for index in 0..sources.len().max(1) {
        let subject = match sources.get(index) {
            Some((source, _)) => format!("{name} ({source})"),
            None => name.clone(),
        };
        findings.push(test_key(&adapter, CredentialId(index), (provider, config), subject).await);
    }
    findings
}

fn adapter(
    provider: &DiscoveredProvider,
    variables: &Variables,
    state: &Path,
) -> Result<HttpProvider, String> {
    let config = provider.config(variables, state).map_err(|error| error.to_string())?;
    HttpProvider::new(config).map_err(|error| error.to_string())
}

/// Tests a key: by the list of models, or by a small call where the list is public or there is none.
async fn test_key(
    adapter: &HttpProvider,
    key: CredentialId,
    (provider, config): (&DiscoveredProvider, &Config),
    subject: String,
) -> Finding {
    let is_list_public = vendor_at(&provider.base_url).is_some_and(|vendor| vendor.is_router);
    if !is_list_public {
        match adapter.list_status(key).await {
            Ok(200..=299) => return Finding::ok(subject, "it has listed its models"),
            Ok(status @ (401 | 403)) => {
                let value = format!("it refuses the key (status {status})");
                return Finding::fail(subject, value, refused_key(provider));
            }
            // A list is no part of every API.
            Ok(_) => {}
            Err(failure) => return failed(subject, &failure, provider),
        }
    }
    let model = match &provider.model {
        Ok(model) => Arc::clone(model),
        Err(reason) => return Finding::skipped(subject, format!("it is not called: {reason}")),
    };
    let profile = ModelRef::new(Arc::clone(&provider.name), Arc::clone(&model))
        .map(|model| model_catalogue::profile(config, &model))
        .unwrap_or_default();
    match probe(adapter, &model, &profile, key).await {
        Ok(()) => {
            Finding::ok(subject, format!("{model} has answered a call of at most {MAX_PROBE_TOKENS} tokens"))
        }
        Err(failure) => failed(subject, &failure, provider),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all others are about the way to the provider")]
fn failed(subject: String, failure: &Failure, provider: &DiscoveredProvider) -> Finding {
    let remedy = match failure.class {
        FailureClass::Auth => refused_key(provider),
        FailureClass::QuotaExhausted { .. } => "see to the account at the provider".to_owned(),
        FailureClass::ModelNotFound => format!("set providers.{}.model, or `model`", provider.name),
        _ => format!(
            "see whether it runs and the network is up; its address is set by providers.{}.base_url{}",
            provider.name,
            vendor_variable(provider)
        ),
    };
    Finding::fail(subject, failure.to_string(), remedy)
}

/// The variable that moves the endpoint of a vendor.
fn vendor_variable(provider: &DiscoveredProvider) -> String {
    let vendor = VENDORS.iter().find(|vendor| *vendor.name == *provider.name);
    vendor.and_then(|vendor| vendor.base_url_key).map_or_else(String::new, |key| format!(" or {key}"))
}

fn refused_key(provider: &DiscoveredProvider) -> String {
    let sources = provider.account.credentials.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("put a valid key where it is read from: {sources}")
}

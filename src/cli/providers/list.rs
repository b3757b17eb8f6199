//! `hermod providers list`: the available providers, their default models, and whether their keys can be read.

use std::sync::Arc;

use hermod_actors::model::{ModelProfile, ModelRef};

use crate::{
    cli::{CliError, format, print, print_json, table},
    config::Config,
    discovery::{DiscoveredProvider, Variables},
    host::{OllamaProbe, discover},
    model_catalogue,
    secret::{MissingSecret, redacted_url},
    view::{ConfiguredProviderView, CredentialView},
};

/// Lists the providers.
pub(super) async fn execute(json: bool, variables: &Variables) -> Result<(), CliError> {
    let config = Config::read(variables)?;
    let providers = discover(&config, variables, OllamaProbe::of(&config)).await;
    if json {
        let views: Vec<_> = providers.iter().map(|provider| view(provider, &config, variables)).collect();
        return print_json(&views);
    }
    let rows: Vec<_> = providers
        .iter()
        .map(|provider| {
            let model = table::or_dash(provider.model.as_deref().ok());
            let (name, url) = (provider.name.to_string(), redacted_url(&provider.base_url));
            let (window, price) = format_profile(&profile(provider, &config));
            let (credentials, from) = (credentials(provider, variables), provider.source.name().into());
            [name, url, provider.wire.into(), credentials, model, window, price, from]
        })
        .collect();
    let head = ["PROVIDER", "BASE URL", "WIRE", "CREDENTIAL", "MODEL", "WINDOW", "PRICE", "FROM"];
    print(&table::render(head, &rows))
}

/// The references of the credentials, with the problem of each that is missing.
pub(crate) fn credentials(provider: &DiscoveredProvider, variables: &Variables) -> String {
    let sources =
        provider.account.credential_report(variables).into_iter().map(|(text, missing)| match missing {
            None => text,
            Some(missing) => format!("missing: {missing}"),
        });
    let sources: Vec<_> = sources.collect();
    if sources.is_empty() { "none".to_owned() } else { sources.join(", ") }
}

/// The profile of the provider's default model.
fn profile(provider: &DiscoveredProvider, config: &Config) -> ModelProfile {
    let model = provider
        .model
        .as_ref()
        .ok()
        .and_then(|model| ModelRef::new(Arc::clone(&provider.name), Arc::clone(model)).ok());
    model.map(|model| model_catalogue::profile(config, &model)).unwrap_or_default()
}

/// The window, and the prices of input and output per million tokens.
fn format_profile(profile: &ModelProfile) -> (String, String) {
    // Nano-dollars per token are thousandths of a dollar per million.
    let dollars = |price: u64| format::dollars(price.saturating_mul(1_000_000));
    let price = profile.price.map(|price| format!("{} / {}", dollars(price.input), dollars(price.output)));
    (table::or_dash(profile.window), table::or_dash(price))
}

fn view(provider: &DiscoveredProvider, config: &Config, variables: &Variables) -> ConfiguredProviderView {
    let profile = profile(provider, config);
    let credential = |(from, missing): (String, Option<MissingSecret>)| CredentialView {
        from,
        error: missing.map(|missing| missing.reason),
    };
    ConfiguredProviderView {
        name: provider.name.to_string(),
        base_url: redacted_url(&provider.base_url),
        wire: provider.wire,
        credentials: provider.account.credential_report(variables).into_iter().map(credential).collect(),
        pool: provider.account.pool,
        requests_per_minute: provider.account.limits.requests,
        tokens_per_minute: provider.account.limits.tokens,
        model: provider.model.as_deref().ok().map(str::to_owned),
        window: profile.window,
        priced: profile.price.is_some(),
        calls: provider.limits.calls.0,
        from: provider.source.name(),
    }
}

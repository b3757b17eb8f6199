//! Checks a configuration as its use would: the models that it names, and the credentials of its providers. The check of
//! the command line, and a reload of the service, call this.

use std::path::Path;

use super::error::StartError;
use crate::{
    config::Config,
    discovery::{self, DiscoveredProvider, ModelChoiceError, RequestedModel, Variables},
};

/// Checks the models that the configuration of each agent names against the available providers, and reads all credentials. A run reads
/// those of only the providers that it needs.
pub fn check_config(
    config: &Config,
    variables: &Variables,
    (providers, state): (&[DiscoveredProvider], &Path),
) -> Result<(), StartError> {
    for (name, config) in config.agents() {
        check_models(config, providers).map_err(|error| {
            if name.is_default() { StartError::NoModel(error) } else { StartError::Agent { name, error } }
        })?;
    }
    for provider in providers {
        provider.config(variables, state).map_err(StartError::NoModel)?;
    }
    Ok(())
}

/// Checks that the models of an agent can be chosen.
fn check_models(config: &Config, providers: &[DiscoveredProvider]) -> Result<(), ModelChoiceError> {
    let requested = RequestedModel { provider: None, model: config.model.0.as_deref() };
    let first = discovery::choose(providers, requested)?;
    let auxiliary = config.auxiliary.values().map(|section| &section.chain.0);
    for links in [&config.fallback_providers.0].into_iter().chain(auxiliary) {
        discovery::chain(providers, first.clone(), links)?;
    }
    Ok(())
}

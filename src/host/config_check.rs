//! Checks a configuration as its use would: the models that it names, and the credentials of its providers. The check of
//! the command line, and a reload of the service, call this.

use std::path::Path;

use super::error::StartError;
use crate::{
    config::Config,
    discovery::{self, DiscoveredProvider, RequestedModel, Variables},
};

/// Checks the models that the configuration names against the available providers, and reads all credentials. A run reads
/// those of only the providers that it needs.
pub fn check_config(
    config: &Config,
    variables: &Variables,
    (providers, state): (&[DiscoveredProvider], &Path),
) -> Result<(), StartError> {
    let requested = RequestedModel { provider: None, model: config.model.0.as_deref() };
    let first = discovery::choose(providers, requested).map_err(StartError::NoModel)?;
    let auxiliary = config.auxiliary.values().map(|section| &section.chain.0);
    for links in [&config.fallback_providers.0].into_iter().chain(auxiliary) {
        discovery::chain(providers, first.clone(), links).map_err(StartError::NoModel)?;
    }
    for provider in providers {
        provider.config(variables, state).map_err(StartError::NoModel)?;
    }
    Ok(())
}

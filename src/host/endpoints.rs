//! Creates the adapters of the providers that runs need, and keeps them by name. A rehearsal is such a provider: its
//! script is stored in the state directory, and it is started here.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use hermod_actors::{
    model::{Hash, ModelRef, RunSpec},
    port::ModelProvider,
};

use super::error::StartError;
use crate::{
    config::ProviderDefaults,
    discovery::{self, DiscoveredProvider, DiscoverySource, ModelChoiceError, Variables},
    files::{self, IoResult as _, read_regular},
    maintenance::scripts::{self, SCRIPTS},
    provider::HttpProvider,
    provider_account::ProviderAccount,
    rehearsal::{MAX_SCRIPT_BYTES, Rehearsal, RehearsalHandle, Script, ScriptError},
};

/// The name of the rehearsal provider for a script.
fn rehearsal_provider_name(script: Hash) -> Arc<str> {
    let mut name = format!("rehearsal-{script}");
    name.truncate("rehearsal-".len() + 8);
    name.into()
}

/// Stores a script under its hash for as long as a run may need it. Returns the hash, and the model name for the
/// run's chain.
pub fn store_script(state: &Path, json: &[u8], script: &Script) -> Result<(Hash, ModelRef), StartError> {
    let hash = Hash::of(json);
    let (folder, path) = (state.join(SCRIPTS), script_path(state, hash));
    let write = || {
        // Another process may be writing the same script.
        let part = path.with_extension(format!("{}.part", std::process::id()));
        files::remove(&part)?;
        files::write(&part, json)?;
        fs::rename(&part, &path)?;
        files::sync_folder(&folder)
    };
    let keep = || {
        files::make_folder(&folder)?;
        let _no_sweep = scripts::lock_folder(&folder, File::lock_shared)?;
        if path.exists() { scripts::touch(&path) } else { write() }
    };
    keep().at(&path)?;
    let model = script.model();
    let model = model.strip_prefix("rehearsal/").unwrap_or(&model);
    Ok((hash, ModelRef::new(rehearsal_provider_name(hash), model).map_err(ModelChoiceError::Name)?))
}

/// The path of the script with this hash.
pub(super) fn script_path(state: &Path, hash: Hash) -> PathBuf {
    state.join(SCRIPTS).join(format!("{hash}.json"))
}

/// An adapter, and the limit of its concurrent calls.
type Endpoint = (Arc<dyn ModelProvider>, usize);

/// Endpoints that are to replace others.
#[derive(Debug)]
pub(super) struct ReconnectedEndpoints {
    discovered: Vec<DiscoveredProvider>,
    providers: BTreeMap<Arc<str>, Endpoint>,
}

/// The endpoints that runs need; each is created when the first run needs it.
#[derive(Debug)]
pub struct Endpoints {
    discovered_providers: Vec<DiscoveredProvider>,
    pub(super) state: PathBuf,
    /// Settings of the rehearsal providers.
    limits: ProviderDefaults,
    providers: BTreeMap<Arc<str>, Endpoint>,
    rehearsals: Vec<RehearsalHandle>,
    missing_auxiliary_models: Vec<(ModelRef, String)>,
}

impl Endpoints {
    /// No endpoints yet; they are created from the discovered providers and from the scripts stored in `state`.
    pub fn new(
        discovered_providers: Vec<DiscoveredProvider>,
        state: PathBuf,
        limits: ProviderDefaults,
    ) -> Self {
        for provider in &discovered_providers {
            provider.account.learn_stored_token(&provider.name, &state);
        }
        Self {
            discovered_providers,
            state,
            limits,
            providers: BTreeMap::new(),
            rehearsals: Vec::new(),
            missing_auxiliary_models: Vec::new(),
        }
    }

    /// Auxiliary models that are not available, each with the reason.
    pub fn missing_auxiliary_models(&self) -> &[(ModelRef, String)] {
        &self.missing_auxiliary_models
    }

    /// Number of the endpoints created so far.
    pub(super) fn count(&self) -> usize {
        self.providers.len()
    }

    /// The endpoints created so far: each with its name and the limit of its concurrent calls.
    pub(super) fn providers(&self) -> Vec<(Arc<str>, Arc<dyn ModelProvider>, usize)> {
        let providers = self.providers.iter();
        providers.map(|(name, (adapter, calls))| (Arc::clone(name), Arc::clone(adapter), *calls)).collect()
    }

    /// Adds discovered providers whose names are not known yet.
    pub fn add_discovered(&mut self, providers: Vec<DiscoveredProvider>) {
        for provider in providers {
            if self.discovered_providers.iter().all(|known| known.name != provider.name) {
                provider.account.learn_stored_token(&provider.name, &self.state);
                self.discovered_providers.push(provider);
            }
        }
    }

    /// Connects anew to those of the providers that are in use, with their present keys. Changes nothing yet.
    pub(super) fn reconnect(
        &self,
        discovered: Vec<DiscoveredProvider>,
        variables: &Variables,
    ) -> Result<ReconnectedEndpoints, StartError> {
        let is_used = |provider: &&DiscoveredProvider| self.providers.contains_key(&provider.name);
        let used = discovered.iter().filter(is_used);
        let connect = |provider: &DiscoveredProvider| {
            Ok((Arc::clone(&provider.name), endpoint(provider, variables, &self.state)?))
        };
        Ok(ReconnectedEndpoints {
            providers: used.map(connect).collect::<Result<_, StartError>>()?,
            discovered,
        })
    }

    /// Uses reconnected endpoints. Those of other providers stay for runs that began with them, and new runs cannot choose
    /// them.
    pub(super) fn exchange(&mut self, reconnected: ReconnectedEndpoints) {
        let ReconnectedEndpoints { discovered, providers } = reconnected;
        for provider in &discovered {
            provider.account.learn_stored_token(&provider.name, &self.state);
        }
        self.discovered_providers = discovered;
        self.providers.extend(providers);
        self.missing_auxiliary_models.clear();
    }

    /// The discovered providers.
    pub fn discovered_providers(&self) -> &[DiscoveredProvider] {
        &self.discovered_providers
    }

    /// Adds the endpoints for a run with this spec. The keys of the providers are read now, not before.
    pub async fn add_for_run(&mut self, spec: &RunSpec, variables: &Variables) -> Result<(), StartError> {
        match self.add_available(spec, variables).await.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Adds the endpoints as `add_for_run` does, and returns the unavailable providers, each with the
    /// reason.
    pub async fn add_available(
        &mut self,
        spec: &RunSpec,
        variables: &Variables,
    ) -> Vec<(Arc<str>, StartError)> {
        let mut unavailable = Vec::new();
        for link in &spec.chain {
            if let Err(error) = self.add_provider(link.provider(), spec, variables).await {
                unavailable.push((Arc::clone(link.provider()), error));
            }
        }
        // An auxiliary model is not required for the run.
        for link in spec.auxiliary_models() {
            if let Err(error) = self.add_provider(link.provider(), spec, variables).await {
                tracing::warn!(model = %link, %error, "it cannot be asked beside runs");
                if self.missing_auxiliary_models.iter().all(|(known, _)| known != link) {
                    self.missing_auxiliary_models.push((link.clone(), error.to_string()));
                }
            }
        }
        unavailable
    }

    async fn add_provider(
        &mut self,
        name: &Arc<str>,
        spec: &RunSpec,
        variables: &Variables,
    ) -> Result<(), StartError> {
        if self.providers.contains_key(name) {
            return Ok(());
        }
        let provider = match spec.script.filter(|script| rehearsal_provider_name(*script) == *name) {
            Some(script) => self.start_rehearsal(script).await,
            None => self.connect(name, variables),
        }?;
        self.providers.insert(Arc::clone(name), provider);
        Ok(())
    }

    fn connect(&self, name: &str, variables: &Variables) -> Result<Endpoint, StartError> {
        let provider = self.discovered_providers.iter().find(|provider| *provider.name == *name);
        let provider =
            provider.ok_or_else(|| discovery::unknown_provider(&self.discovered_providers, name))?;
        endpoint(provider, variables, &self.state)
    }

    async fn start_rehearsal(&mut self, hash: Hash) -> Result<Endpoint, StartError> {
        let path = script_path(&self.state, hash);
        let script_error = |reason: String| StartError::Script { path: path.clone(), reason };
        let json = read_regular(&path, MAX_SCRIPT_BYTES).map_err(|error| script_error(error.to_string()))?;
        let script = Script::parse(&json).map_err(|error: ScriptError| script_error(error.to_string()))?;
        let rehearsal =
            Rehearsal::start("127.0.0.1:0", Arc::new(script)).await.map_err(StartError::Listen)?;
        let discovered = DiscoveredProvider {
            name: rehearsal_provider_name(hash),
            source: DiscoverySource::Local,
            base_url: rehearsal.base_url.clone(),
            wire: "chat_completions",
            account: ProviderAccount::default(),
            model: Err("it plays a script".into()),
            limits: self.limits,
        };
        self.rehearsals.push(rehearsal);
        let provider = HttpProvider::new(discovered.config(&Variables::new(), &self.state)?)?;
        Ok((Arc::new(provider.without_model_list()), max_calls(&discovered)))
    }
}

/// A provider's adapter, and the limit of its concurrent calls.
pub(crate) fn endpoint(
    provider: &DiscoveredProvider,
    variables: &Variables,
    state: &Path,
) -> Result<Endpoint, StartError> {
    Ok((Arc::new(HttpProvider::new(provider.config(variables, state)?)?), max_calls(provider)))
}

fn max_calls(provider: &DiscoveredProvider) -> usize {
    usize::try_from(provider.limits.calls.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_kept_under_its_hash() {
        let state = tempfile::tempdir().unwrap();
        let json = br#"{"name":"t","scripts":[{"steps":[{"say":"hi"}]}]}"#;
        let script = Script::parse(json).unwrap();
        let (hash, model) = store_script(state.path(), json, &script).unwrap();
        assert_eq!(fs::read(script_path(state.path(), hash)).unwrap(), json);
        assert_eq!(model.to_string(), format!("rehearsal-{}/t", &hash.to_string()[..8]));
        assert_eq!(store_script(state.path(), json, &script).unwrap(), (hash, model));
    }
}

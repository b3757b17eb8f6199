//! Reloads the configuration of a running process: everything new is made first, so that a bad configuration changes
//! nothing, and exchanged then. Runs under way keep their specs.

use super::{
    config_check::check_config,
    error::HostError,
    exchangeable::Exchangeable,
    inbound::checked_inbound,
    model_choice::{OllamaProbe, discover},
    sandbox_rules::note_missing_protections,
    start::{RuntimeHost, checked_policy, configured_tools, memory_writer, verifier},
    submission::{RunSettings, RunSubmitter},
};
use crate::{
    config::Config, discovery::Variables, hooks::ConfiguredHooks, prompt::LayeredPrompt, view::ReloadView,
};

/// Keys that are read once, when the process starts: each a key or a section.
const RESTART_KEYS: &[&str] = &["breaker", "service", "sessions", "store", "telemetry", "tools.calls"];

impl RunSubmitter {
    /// Reads the configuration again, and exchanges what new runs are made of: providers, tools, policy, prompts and specs.
    pub async fn reload(
        &self,
        host: &RuntimeHost,
        prompt: &Exchangeable<LayeredPrompt>,
    ) -> Result<ReloadView, HostError> {
        let before = self.settings();
        let variables = before.variables.clone();
        let config = Config::read(&variables).map_err(super::StartError::Config)?;
        let (changed, restart) = changed_keys(&before.config, &config);
        host.exchange(&config, &variables, !self.has_script()).await?;
        prompt.exchange(LayeredPrompt::new(&config, &host.state));
        let files = config.files.clone();
        self.exchange_settings(RunSettings { config, variables });
        // Last: what is due now begins with the new settings.
        host.reconcile_schedules(&self.settings().config).await?;
        Ok(ReloadView { files, changed, restart })
    }
}

impl RuntimeHost {
    /// Exchanges providers, tools and policy for those of this configuration, or nothing. With `needs_model`, a new run must
    /// find its model.
    async fn exchange(
        &self,
        config: &Config,
        variables: &Variables,
        needs_model: bool,
    ) -> Result<(), HostError> {
        let discovered = discover(config, variables, OllamaProbe::of(config)).await;
        if needs_model {
            check_config(config, variables, (&discovered, &self.state))?;
        }
        let policy = checked_policy(config, &self.state, self.notes.clone()).await;
        let targets = self.checked_targets(config, variables)?;
        let inbound = checked_inbound(config, variables)?;
        for (name, token) in config.channels.iter().filter_map(|(name, it)| Some((name, it.token.as_ref()?)))
        {
            let missing = |missing| HostError::usage(format!("channels.{name}.token: {missing}"));
            token.0.resolve(variables).map_err(missing)?;
        }
        let hooks = ConfiguredHooks::new(config, variables, &self.state);
        let tools = configured_tools(config, &self.state, &self.runner).await;
        let mut endpoints = self.endpoints.lock().await;
        let reconnected = endpoints.reconnect(discovered, variables)?;
        self.runtime.exchange_tools(tools)?;
        self.policy.exchange(policy);
        self.runtime.set_verifier(verifier(config, &self.state, &self.runner, &self.policy));
        self.runtime.set_memory(memory_writer(config, &self.state, &self.runner));
        self.exchange_targets(&targets);
        self.inbound.exchange(inbound);
        self.exchange_hooks(hooks).await?;
        self.runtime.set_store_limits(config.limits.by_period());
        self.runtime.set_lane_limits(config.lanes.limits());
        endpoints.exchange(reconnected);
        note_missing_protections(config, &self.state, self.notes.as_ref());
        Ok(self.runtime.exchange_providers(endpoints.providers())?)
    }
}

/// The keys whose values differ: those that hold from now on, and those that need a restart.
fn changed_keys(before: &Config, after: &Config) -> (Vec<String>, Vec<String>) {
    let value = |config: &Config, key: &str| config.settings.get(key).map(|setting| setting.value.clone());
    let keys =
        before.settings.keys().chain(after.settings.keys().filter(|key| !before.settings.contains_key(*key)));
    let mut changed: Vec<String> =
        keys.filter(|key| value(before, key) != value(after, key)).cloned().collect();
    changed.sort_unstable();
    changed.into_iter().partition(|key| !needs_restart(key))
}

fn needs_restart(key: &str) -> bool {
    let is_of = |section: &str| {
        key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    RESTART_KEYS.iter().any(|section| is_of(section))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reload_cannot_change_is_named() {
        let load = |variables: &[(&str, &str)]| {
            let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Config::load(&[], &owned.collect()).unwrap()
        };
        let check = |variables: &[(&str, &str)], changed: &[&str], restart: &[&str]| {
            let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
            let found = changed_keys(&load(&[]), &load(variables));
            assert_eq!(found, (owned(changed), owned(restart)), "{variables:?}");
        };
        check(&[], &[], &[]);
        check(&[("HERMOD_AGENT__MAX_TURNS", "7")], &["agent.max_turns"], &[]);
        check(
            &[
                ("HERMOD_TOOLS__CALLS", "7"),
                ("HERMOD_TOOLS__IN_DOUBT", "ask"),
                ("HERMOD_SERVICE__CONNECTIONS", "9"),
            ],
            &["tools.in_doubt"],
            &["service.connections", "tools.calls"],
        );
    }

    #[test]
    fn every_key_that_needs_a_restart_exists() {
        let config = Config::load(&[], &Variables::new()).unwrap();
        for section in RESTART_KEYS {
            let is_known = |key: &String| key == section || key.starts_with(&format!("{section}."));
            assert!(config.settings.keys().any(is_known), "{section}");
        }
    }
}

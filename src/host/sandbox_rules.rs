//! The sandbox of shell commands as the configuration describes it.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    config::{Config, SandboxModeName, SandboxSection},
    process::sandbox::{SandboxLimits, SandboxMode, SandboxRules},
};

/// The rules for the commands of an agent; `None` if the sandbox is off. The state directory and the files of credentials are hidden.
pub fn sandbox_rules(config: &Config, state: &Path) -> Option<SandboxRules> {
    let SandboxSection { mode, workspace: _, network, unix_sockets, read, write, hide, limits } =
        &config.sandbox;
    let mode = match mode {
        SandboxModeName::Off => return None,
        SandboxModeName::Workspace => SandboxMode::Workspace,
        SandboxModeName::ReadOnly => SandboxMode::ReadOnly,
        SandboxModeName::Required => SandboxMode::Required,
    };
    let bytes = |size: u64| (size > 0).then_some(size);
    let hidden = hide.0.iter().cloned().chain([state.to_owned()]).chain(credential_files(config));
    // Skills have scripts that commands run.
    let skills = config.skills.paths.0.iter().cloned().chain([state.join("skills")]);
    let skills = skills.filter(|_| config.skills.enabled.0);
    Some(SandboxRules {
        mode,
        read: read.0.iter().cloned().chain(skills).collect(),
        write: write.0.clone(),
        hide: hidden.collect(),
        network: network.0.clone(),
        unix_sockets: unix_sockets.0,
        limits: SandboxLimits {
            cpu_seconds: limits.cpu.0.map(|time| time.as_secs().max(1)),
            memory: bytes(limits.memory.0),
            file_size: bytes(limits.file_size.0),
            processes: Some(limits.processes.0.into()),
            open_files: Some(limits.open_files.0.into()),
        },
    })
}

/// The files that the configuration names as secrets.
fn credential_files(config: &Config) -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(PathBuf::from);
    config.secret_references().filter_map(|reference| reference.file(home.as_deref())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::process::sandbox::NetworkAccess;

    #[test]
    fn the_configured_rules_hide_state_and_credentials() {
        let config = Config::load(&[], &BTreeMap::new()).unwrap();
        let rules = sandbox_rules(&config, Path::new("/state")).expect("it is on by default");
        let expected = (SandboxMode::Workspace, NetworkAccess::Off, false);
        assert_eq!((rules.mode, rules.network, rules.unix_sockets), expected);
        assert_eq!(rules.hide, [Path::new("/state")]);
        assert_eq!(rules.read, [Path::new("/state/skills")]);
        assert_eq!(rules.limits.cpu_seconds, Some(6 * 3600));

        let load = |name: &str, value: &str| {
            Config::load(&[], &BTreeMap::from([(name.to_owned(), value.to_owned())])).unwrap()
        };
        let config = load("HERMOD_SANDBOX__NETWORK", r#"["example.com", "127.0.0.1:8080"]"#);
        let hosts = ["example.com", "127.0.0.1:8080"].map(|host| host.parse().unwrap()).to_vec();
        let rules = sandbox_rules(&config, Path::new("/state")).unwrap();
        assert_eq!(rules.network, NetworkAccess::Hosts(hosts));
        assert_eq!(sandbox_rules(&load("HERMOD_SANDBOX__MODE", "off"), Path::new("/state")), None);
        let config = load("HERMOD_PROVIDERS__OPENROUTER__CREDENTIAL", "file:/run/key");
        let rules = sandbox_rules(&config, Path::new("/state")).unwrap();
        assert_eq!(rules.hide, [Path::new("/state"), Path::new("/run/key")]);
    }
}

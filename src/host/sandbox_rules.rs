//! The sandbox of shell commands as the configuration describes it.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::notes::NoteSink;
use crate::{
    config::{Config, SandboxModeName, SandboxSection},
    process::{
        runner::OWN_PROGRAM,
        sandbox::{SandboxLimits, SandboxMode, SandboxRules, SandboxTrial},
    },
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

/// Tries in the background which protections this machine gives, and notes those that it lacks, if commands of an agent
/// run in a sandbox.
pub(super) fn note_missing_protections(config: &Config, state: &Path, notes: Option<&Arc<dyn NoteSink>>) {
    let Some(notes) = notes.cloned() else { return };
    let modes = config.agents().map(|(_, config)| config.sandbox.mode);
    let modes: Vec<_> = modes.filter(|mode| *mode != SandboxModeName::Off).collect();
    if modes.is_empty() {
        return;
    }
    let (state, is_required) = (state.to_owned(), modes.contains(&SandboxModeName::Required));
    tokio::spawn(async move {
        match SandboxTrial::run(OWN_PROGRAM.as_ref(), &state).await {
            Ok(trial) => {
                missing_note(&trial.status.missing(), is_required).iter().for_each(|line| notes.note(line));
            }
            Err(error) => {
                notes.note(&format!("sandbox   it is not known what this kernel protects from: {error}"));
            }
        }
    });
}

fn missing_note(missing: &[&str], is_required: bool) -> Option<String> {
    let consequence = if is_required {
        "commands of agents whose sandbox.mode is \"required\" are refused, and others have less protection"
    } else {
        "commands of models have less protection; sandbox.mode = \"required\" would refuse them"
    };
    let missing = (!missing.is_empty()).then(|| missing.join(" and "))?;
    Some(format!("sandbox   this kernel lacks {missing}: {consequence}; see `hermod doctor sandbox`"))
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
    use crate::process::sandbox::{NetworkAccess, SandboxStatus};

    #[test]
    fn a_missing_protection_is_noted_with_what_follows() {
        let status = |landlock, system_calls, mounts| SandboxStatus { landlock, system_calls, mounts };
        let note = |status: SandboxStatus| missing_note(&status.missing(), false).unwrap_or_default();
        assert_eq!(note(status(6, true, true)), "");
        let lacks = [
            (status(0, true, true), "lacks Landlock ("),
            (status(5, true, true), "lacks version 6 of Landlock"),
            (status(6, false, true), "lacks filters of system calls (seccomp):"),
            (status(6, true, false), "lacks mount namespaces for this user"),
            (status(6, false, false), "(seccomp) and mount namespaces"),
        ];
        for (status, expected) in lacks {
            let note = note(status);
            assert!(note.contains(expected) && note.contains("hermod doctor sandbox"), "{note}");
        }
        let refused = missing_note(&status(5, true, true).missing(), true);
        assert!(refused.is_some_and(|note| note.contains("are refused")));
    }

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

//! The section `sandbox`: what the shell commands of a model may do.

use serde::Deserialize;
use serde_json::Value;

use super::values::{AbsolutePaths, Flag, OptionalByteSize, OptionalDuration, PositiveCount};
use crate::process::sandbox::{HostRule, NetworkAccess};

/// The section `sandbox`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSection {
    /// How strict the sandbox is.
    pub mode: SandboxModeName,
    /// Which sessions have a workspace in common.
    pub workspace: WorkspaceScope,
    /// How much of the network commands may use.
    pub network: NetworkSetting,
    /// Whether commands may use sockets with a path.
    pub unix_sockets: Flag,
    /// Further paths that commands may read.
    pub read: AbsolutePaths,
    /// Further paths that commands may write.
    pub write: AbsolutePaths,
    /// Further paths that commands may neither read nor write.
    pub hide: AbsolutePaths,
    /// The section `sandbox.limits`.
    pub limits: SandboxLimitsSection,
}

/// The section `sandbox.limits`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxLimitsSection {
    /// Processor time of one process.
    pub cpu: OptionalDuration,
    /// Private memory of one process.
    pub memory: OptionalByteSize,
    /// Size of one file.
    pub file_size: OptionalByteSize,
    /// Processes and threads besides those that run already.
    pub processes: PositiveCount,
    /// Open files of one process.
    pub open_files: PositiveCount,
}

/// How strict the sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum SandboxModeName {
    /// There is none.
    Off,
    /// Commands write only to the workspace.
    Workspace,
    /// Commands do not write to the workspace either.
    ReadOnly,
    /// As `Workspace`; nothing is run if the kernel lacks a protection.
    Required,
}

/// Which sessions have a workspace in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum WorkspaceScope {
    /// All of the same folder.
    Shared,
    /// None: each has a folder of its own in the chosen one.
    Session,
}

/// How much of the network commands may use.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct NetworkSetting(pub NetworkAccess);

impl TryFrom<Value> for SandboxModeName {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value.as_str() {
            Some("off") => Ok(Self::Off),
            Some("workspace") => Ok(Self::Workspace),
            Some("read-only") => Ok(Self::ReadOnly),
            Some("required") => Ok(Self::Required),
            Some(_) | None => Err("must be \"off\", \"workspace\", \"read-only\" or \"required\""),
        }
    }
}

impl TryFrom<Value> for WorkspaceScope {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value.as_str() {
            Some("shared") => Ok(Self::Shared),
            Some("session") => Ok(Self::Session),
            Some(_) | None => Err("must be \"shared\" or \"session\""),
        }
    }
}

impl TryFrom<Value> for NetworkSetting {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        const RULE: &str = "must be \"off\", \"on\" or a list of hosts, like [\"example.com\", \"*.example.com\", \"127.0.0.1:8080\"]";
        let rule = |host: &Value| {
            let host = host.as_str().ok_or(RULE)?;
            host.trim().parse::<HostRule>().map_err(|problem| format!("the host {host:?} {problem}"))
        };
        let hosts = match &value {
            Value::String(text) if text == "off" => return Ok(Self(NetworkAccess::Off)),
            Value::String(text) if text == "on" => return Ok(Self(NetworkAccess::On)),
            // The variable has a text for every form.
            Value::String(text) if text.starts_with('[') => serde_json::from_str(text).map_err(|_| RULE)?,
            Value::Array(hosts) => hosts.clone(),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                return Err(RULE.to_owned());
            }
        };
        let hosts: Result<_, String> = hosts.iter().map(rule).collect();
        hosts.map(|hosts| Self(NetworkAccess::Hosts(hosts)))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use super::*;
    use crate::config::{Config, ConfigFile};

    fn load(value: &str) -> Result<NetworkSetting, String> {
        let text = format!("[sandbox]\nnetwork = {value}\n");
        let file = ConfigFile { path: PathBuf::from("config.toml"), text };
        Config::load(&[file], &BTreeMap::new())
            .map(|config| config.sandbox.network)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_network_is_off_on_or_a_list_of_hosts() {
        let hosts =
            |hosts: &[&str]| NetworkAccess::Hosts(hosts.iter().map(|host| host.parse().unwrap()).collect());
        let check = |value: &str, expected| assert_eq!(load(value), Ok(NetworkSetting(expected)), "{value}");
        check("\"off\"", NetworkAccess::Off);
        check("\"on\"", NetworkAccess::On);
        check("[]", hosts(&[]));
        check("[\"*.Example.com\", \"127.0.0.1:8080\"]", hosts(&["*.example.com", "127.0.0.1:8080"]));
        let variable = ("HERMOD_SANDBOX__NETWORK".to_owned(), "[\"a.org\", \"b.org:1\"]".to_owned());
        let config = Config::load(&[], &BTreeMap::from([variable])).unwrap();
        assert_eq!(config.sandbox.network.0, hosts(&["a.org", "b.org:1"]));
    }

    #[test]
    fn a_bad_host_is_an_error_with_its_key_and_a_remedy() {
        let check = |value: &str, expected: &str| {
            let error = load(value).unwrap_err();
            assert!(error.starts_with("config.toml:2: sandbox.network"), "{error}");
            assert!(error.contains(expected), "{error}");
        };
        for value in ["true", "\"example.com\"", "7", "[7]", "\"[7\"", "[[\"a.org\"]]"] {
            check(value, "must be \"off\", \"on\" or a list of hosts, like [\"example.com\"");
        }
        check("[\"a.org\", \"\"]", "the host \"\" is empty; give a host");
        check("[\"https://a.org\"]", "the host \"https://a.org\" has a scheme; give the host alone");
        check("[\"a.org/x\"]", "the host \"a.org/x\" has more than a host and a port; give it without path");
        check("[\"a.org:0\"]", "the host \"a.org:0\" has a bad port; give a number");
        check(
            "[\"a.*.org\"]",
            "the host \"a.*.org\" has a `*` that is not the whole first label; give it like",
        );
        check("[\"10.0.0.1\"]", "needs its port, like \"127.0.0.1:8080\"");
    }
}

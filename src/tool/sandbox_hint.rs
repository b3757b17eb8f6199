//! What a model is told about the sandbox when a command failed on it. The refusals of the kernel look like any other
//! error.

use std::borrow::Cow;

use crate::process::{
    Capture, CommandResult, HEAD_BYTES, TAIL_BYTES,
    sandbox::{HostRule, NetworkAccess, SandboxRules},
};

const NETWORK: &str = "commands have no network, not even to this machine; only the operator can allow it, with sandbox.network = \"on\" or a list of hosts";
const SOCKETS: &str = "commands may not use sockets with a path; only the operator can allow it, with sandbox.unix_sockets = true";
const FILES: &str = "commands write only to the workspace and to $TMPDIR, and read neither credentials nor other homes; only the \
    operator can allow more, with sandbox.write or sandbox.read";
const READ_ONLY: &str = "commands write only to $TMPDIR; the operator has set sandbox.mode = \"read-only\"";

/// Hosts that a hint names.
const MAX_LISTED_HOSTS: usize = 10;

/// Texts of programs that could not reach a host.
const NETWORK_SIGNS: &[&str] = &[
    "could not resolve",
    "couldn't resolve",
    "couldn't connect to server",
    "failed to connect to",
    "failed to lookup address",
    "eai_again",
    "enetunreach",
    "enotfound",
    "getaddrinfo",
    "name or service not known",
    "name resolution",
    "network is unreachable",
    "newconnectionerror",
    "socket: operation not permitted",
    "socket: permission denied",
    "temporary failure resolving",
    "unable to resolve host",
    "unable to connect to",
    "urlopen error",
];
/// Texts of programs that the proxy has refused.
const PROXY_SIGNS: &[&str] = &[
    "refused by sandbox.network",
    "sandbox.network does not allow",
    "statuscode=403",
    "to sandbox.network",
    "tunnel failed, response 403",
];
/// Texts of programs that could not reach a service of this machine.
const SOCKET_SIGNS: &[&str] = &["docker.sock", "docker daemon", "dbus", "agent.sock", "/run/user/", ".sock:"];
/// Texts of programs that could not open a file.
const FILE_SIGNS: &[&str] = &[
    "permission denied",
    "eacces",
    "eperm",
    "operation not permitted",
    "permissionerror",
    "cross-device link",
    "erofs",
    "read-only file system",
];

/// The hint for a command that has ended.
pub(super) fn hint(result: &mut CommandResult, rules: &SandboxRules) -> Option<Cow<'static, str>> {
    let has_failed = result.exit_code != Some(0);
    let mut printed = text(&mut result.stderr);
    if has_failed {
        printed.push_str(&text(&mut result.stdout));
    }
    hint_of(&printed, has_failed, rules)
}

fn text(stream: &mut Capture) -> String {
    let shown = stream.truncated(HEAD_BYTES + TAIL_BYTES);
    let [head, tail] = [shown.head, shown.tail].map(String::from_utf8_lossy);
    format!("{head}{tail}").to_lowercase()
}

/// A failure of the network counts also if the command, such as a pipeline, has succeeded.
fn hint_of(printed: &str, has_failed: bool, rules: &SandboxRules) -> Option<Cow<'static, str>> {
    let has = |signs: &[&str]| signs.iter().any(|sign| printed.contains(sign));
    let network = match &rules.network {
        NetworkAccess::On => None,
        NetworkAccess::Off => has(NETWORK_SIGNS).then_some(NETWORK.into()),
        NetworkAccess::Hosts(hosts) => {
            (has(NETWORK_SIGNS) || has(PROXY_SIGNS)).then(|| hosts_hint(hosts).into())
        }
    };
    if network.is_some() {
        network
    } else if !has_failed || !has(FILE_SIGNS) {
        None
    } else if !rules.unix_sockets && has(SOCKET_SIGNS) {
        Some(SOCKETS.into())
    } else if rules.mode.is_workspace_writable() {
        Some(FILES.into())
    } else {
        Some(READ_ONLY.into())
    }
}

fn hosts_hint(hosts: &[HostRule]) -> String {
    let mut listed: Vec<_> = hosts.iter().take(MAX_LISTED_HOSTS).map(ToString::to_string).collect();
    if hosts.len() > listed.len() {
        listed.push("…".to_owned());
    }
    let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
    format!(
        "commands reach only the hosts in sandbox.network ({listed}), on ports 80 and 443 if it names no other, and only \
         through the HTTP proxy that $https_proxy names; only the operator can add hosts to sandbox.network"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::sandbox::{SandboxLimits, SandboxMode};

    fn rules(mode: SandboxMode, is_open: bool) -> SandboxRules {
        SandboxRules {
            mode,
            read: Vec::new(),
            write: Vec::new(),
            hide: Vec::new(),
            network: if is_open { NetworkAccess::On } else { NetworkAccess::Off },
            unix_sockets: is_open,
            limits: SandboxLimits::default(),
        }
    }

    #[test]
    fn a_refusal_is_explained_by_its_setting() {
        let check = |printed: &str, has_failed, is_open, expected: Option<&str>| {
            let rules = rules(SandboxMode::Workspace, is_open);
            assert_eq!(
                hint_of(&printed.to_lowercase(), has_failed, &rules).as_deref(),
                expected,
                "{printed}"
            );
        };
        let refused = "curl: (6) Could not resolve host: example.org";
        check(refused, true, false, Some(NETWORK));
        check(refused, false, false, Some(NETWORK));
        check(refused, true, true, None);
        check("socket.gaierror: [Errno -3] Temporary failure in name resolution", true, false, Some(NETWORK));
        check("PermissionError: [Errno 13] Permission denied: '/etc/x'", true, true, Some(FILES));
        check("rm: cannot remove 'x': Permission denied", false, false, None);
        check("dial unix /var/run/docker.sock: permission denied", true, false, Some(SOCKETS));
        check("error: expected `;`", true, false, None);
        let hosts = |printed: &str, hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
            let rules =
                SandboxRules { network: NetworkAccess::Hosts(hosts), ..rules(SandboxMode::Workspace, false) };
            hint_of(&printed.to_lowercase(), true, &rules)
        };
        for printed in [
            refused,
            "curl: (56) CONNECT tunnel failed, response 403",
            "urllib.error.URLError: <urlopen error Tunnel connection failed: 403 Refused by sandbox.network>",
            "hermod: sandbox.network does not allow evil.org:443; only the operator can allow it",
        ] {
            let hint = hosts(printed, &["example.com", "*.example.com:444"]).expect(printed);
            assert!(
                hint.contains("(example.com, *.example.com:444)") && hint.contains("$https_proxy"),
                "{hint}"
            );
        }
        assert!(hosts(refused, &[]).unwrap().contains("(none)"));
        assert!(hosts(refused, &["a.org"; 11]).unwrap().contains("a.org, …)"));
        assert_eq!(hosts("error: expected `;`", &["a.org"]), None);
        let read_only = rules(SandboxMode::ReadOnly, false);
        assert_eq!(hint_of("permission denied", true, &read_only).as_deref(), Some(READ_ONLY));
    }
}

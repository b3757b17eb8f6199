//! Dangers to secrets and to Hermod itself, and variables that change what programs do.

use super::{DangerRule, Invocation};
use crate::policy::command::{Danger, feed::Feed};

/// Agents, whose own state and life no command of a model may change.
const AGENTS: &[&str] = &["hermod", "hermes", "openclaw", "clawdbot", "moltbot"];

const LOADER: Danger = Danger { name: "loader-variable", why: "makes a program load code from elsewhere" };
const SEARCH_PATH: Danger = Danger {
    name: "search-path",
    why: "puts a folder that others can write before the programs of the system",
};
const HISTORY: Danger = Danger { name: "history-variable", why: "keeps commands out of the history" };

/// The dangers of variables.
pub(super) const ASSIGNMENTS: &[Danger] = &[LOADER, SEARCH_PATH, HISTORY];

pub(super) const RULES: &[DangerRule] = &[
    DangerRule {
        name: "agent-control",
        programs: &["hermod", "hermes", "openclaw", "clawdbot", "moltbot"],
        matches: controls_agent,
        why: "starts, stops, updates or answers for an agent itself",
    },
    DangerRule {
        name: "agent-control",
        programs: &[],
        matches: |c| {
            let is_python = c.name.starts_with("python") || matches!(c.name, "uv" | "py" | "node");
            let mut after = c.words().skip_while(|word| !is_agent_module(word)).skip(1);
            is_python
                && match after.next() {
                    Some("gateway") => changes_gateway(after.next(), c.is_background),
                    verb => matches!(verb, Some("update" | "approvals" | "daemon" | "uninstall")),
                }
        },
        why: "starts, stops, updates or answers for an agent itself",
    },
    DangerRule {
        name: "agent-control",
        programs: &["nohup", "setsid", "screen", "tmux", "systemd-run", "daemonize"],
        matches: |c| c.has(&["gateway"]) && c.has(&["run", "start", "restart"]),
        why: "starts, stops, updates or answers for an agent itself",
    },
    DangerRule {
        name: "agent-service",
        programs: &[
            "launchctl",
            "pkill",
            "kill",
            "killall",
            "service",
            "systemctl",
            "rc-service",
            "supervisorctl",
            "pm2",
        ],
        matches: |c| {
            c.words().any(|word| {
                let word = word.to_ascii_lowercase();
                let is_agent = AGENTS.iter().any(|agent| word.contains(agent));
                word == "gateway"
                    || (c.name.contains("kill") && (word.contains("gateway") || word.contains("cli.py")))
                    || (is_agent
                        && (c.name.contains("kill")
                            || word.contains("gateway")
                            || word.ends_with(".service")
                            || AGENTS.contains(&&*word)))
            }) && !c.has(&["status", "list", "print", "is-active", "show", "-l", "cat"])
        },
        why: "stops or restarts an agent itself",
    },
    DangerRule {
        name: "secret-store",
        programs: &[
            "security",
            "secret-tool",
            "pass",
            "gopass",
            "op",
            "bw",
            "vault",
            "keyring",
            "gpg",
            "kwallet-query",
            "ssh-agent",
            "sops",
            "doppler",
            "infisical",
        ],
        matches: |c| match c.name {
            "security" => c.begins(&["find-", "dump-", "export", "delete-", "add-", "unlock-"]),
            "gpg" => c.begins(&["--export-secret", "--delete-secret", "--delete-keys", "--import"]),
            "ssh-agent" => c.has(&["-k"]),
            "pass" | "gopass" => {
                c.operands().next().is_some_and(|verb| !matches!(verb, "ls" | "list" | "find" | "version"))
            }
            "vault" => c.is_verb(&["read", "write", "delete", "kv", "token", "login", "unwrap"]),
            "sops" => c.has(&["-d", "--decrypt", "decrypt"]),
            "doppler" | "infisical" => c.is_verb(&["secrets", "export"]),
            "op" | "bw" => c.is_verb(&["read", "get", "item", "export", "unlock", "list", "inject"]),
            _ => true,
        },
        why: "reads or changes a store of secrets",
    },
    DangerRule {
        name: "environment-read",
        programs: &["ps"],
        matches: |c| c.words().any(|word| matches!(word, "eww" | "auxe" | "auxewww" | "auxeww" | "axe")),
        why: "shows the environment of other processes",
    },
    DangerRule {
        name: "history",
        programs: &["history", "fc", "unset", "set", "auditctl", "journalctl", "logrotate", "wevtutil"],
        matches: |c| match c.name {
            "history" => c.has_option("cwd", ""),
            "unset" => c.operands().any(|name| matches!(name, "HISTFILE" | "HISTSIZE")),
            "set" => c.has(&["+o"]) && c.has(&["history"]),
            "journalctl" => c.begins(&["--vacuum", "--rotate"]),
            "auditctl" => c.has(&["-D", "-e"]),
            "wevtutil" => c.is_verb(&["cl"]),
            _ => false,
        },
        why: "tampers with the history of commands or with logs",
    },
    DangerRule {
        name: "environment-sent",
        programs: &["curl", "wget", "nc", "ncat", "netcat", "socat", "mail", "http"],
        matches: |c| matches!(c.input, Feed::Unknown { .. }) && c.has(&["-d@-", "@-", "-"]),
        why: "sends the output of a command to the network",
    },
    DangerRule {
        name: "keylogger",
        programs: &[
            "xinput",
            "script",
            "tcpdump",
            "tshark",
            "wireshark",
            "gdb",
            "strace",
            "ptrace",
            "screencapture",
            "xclip",
            "pbpaste",
        ],
        matches: |c| match c.name {
            "gdb" | "strace" => c.has(&["-p", "--pid", "attach"]) || c.begins(&["-p", "--pid"]),
            "xinput" => c.has(&["test", "test-xi2"]),
            "tcpdump" | "tshark" => !c.has(&["-r", "--version", "-h"]),
            _ => false,
        },
        why: "records what other programs or users do",
    },
];

fn controls_agent(command: &Invocation<'_>) -> bool {
    let words: Vec<&str> = command.operands().take(3).collect();
    let reads = |word: &str| matches!(word, "status" | "list" | "show" | "logs" | "check" | "help" | "path");
    match words[..] {
        ["gateway", verb, ..] => changes_gateway(Some(verb), command.is_background),
        ["approvals" | "approval" | "tokens", verb, ..] => !reads(verb),
        [
            "policy" | "config" | "secrets" | "auth" | "pairing" | "plugins" | "hooks" | "skills" | "cron"
            | "tools",
            verb,
            ..,
        ] => {
            matches!(
                verb,
                "set"
                    | "add"
                    | "remove"
                    | "delete"
                    | "edit"
                    | "allow"
                    | "approve"
                    | "install"
                    | "reset"
                    | "enable"
                    | "disable"
                    | "unset"
                    | "migrate"
                    | "uninstall"
                    | "run"
            )
        }
        [
            "update" | "uninstall" | "upgrade" | "stop" | "restart" | "reset" | "gc" | "doctor" | "setup"
            | "login" | "logout" | "daemon" | "node",
            ..,
        ] => words[0] != "doctor" || command.has(&["--fix", "--repair"]),
        ["store", "repair" | "restore" | "vacuum", ..] | ["backup", "restore", ..] => true,
        _ => command.has(&["--yolo", "--dangerously-skip-permissions"]),
    }
}

/// True unless it shows something, or runs in the foreground, where it ends with the command.
fn changes_gateway(verb: Option<&str>, is_background: bool) -> bool {
    match verb {
        Some("run") | None => is_background,
        Some(verb) => {
            !matches!(verb, "status" | "list" | "show" | "logs" | "help" | "--help" | "-h" | "probe")
        }
    }
}

fn is_agent_module(word: &str) -> bool {
    let module = word.to_ascii_lowercase();
    let first = module.rsplit('/').next().unwrap_or_default();
    AGENTS.iter().any(|agent| first.starts_with(agent)) || matches!(first, "cli.py")
}

/// The danger of setting a variable.
pub(super) fn of_assignment(name: &str, value: &str) -> Option<Danger> {
    match name {
        "LD_PRELOAD"
        | "LD_LIBRARY_PATH"
        | "LD_AUDIT"
        | "DYLD_INSERT_LIBRARIES"
        | "DYLD_LIBRARY_PATH"
        | "BASH_ENV"
        | "ENV"
        | "PROMPT_COMMAND"
        | "PERL5OPT"
        | "PERL5LIB"
        | "RUBYOPT"
        | "NODE_OPTIONS"
        | "PYTHONSTARTUP"
        | "PYTHONINSPECT"
        | "GIT_SSH_COMMAND"
        | "GIT_SSH"
        | "GIT_EXTERNAL_DIFF"
        | "GIT_PROXY_COMMAND"
        | "GIT_ASKPASS"
        | "SSH_ASKPASS"
        | "SUDO_ASKPASS"
        | "GIT_EDITOR"
        | "PAGER"
        | "GIT_PAGER"
        | "JAVA_TOOL_OPTIONS"
        | "LESSOPEN"
        | "BASH_FUNC_x"
            if !is_harmless(name, value) =>
        {
            Some(LOADER)
        }
        "PATH" if value.split(':').take(1).any(is_foreign_folder) => Some(SEARCH_PATH),
        "HISTFILE" | "HISTSIZE" | "HISTFILESIZE" | "HISTIGNORE" | "HISTCONTROL" => Some(HISTORY),
        _ => None,
    }
}

/// Values that are usual and load nothing.
fn is_harmless(name: &str, value: &str) -> bool {
    value.is_empty()
        || match name {
            "NODE_OPTIONS" => {
                !value.contains("require") && !value.contains("import") && !value.contains("loader")
            }
            "JAVA_TOOL_OPTIONS" => !value.contains("agent"),
            "PAGER" | "GIT_PAGER" | "GIT_EDITOR" => matches!(value, "cat" | "less" | "true" | ":" | "more"),
            "ENV" => !value.contains('/'),
            "LD_LIBRARY_PATH" | "DYLD_LIBRARY_PATH" => !value.split(':').any(is_foreign_folder),
            _ => false,
        }
}

/// A folder into which other users, or the model itself, may have put programs.
fn is_foreign_folder(folder: &str) -> bool {
    matches!(folder, "" | "." | "./" | "..")
        || ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|start| folder.starts_with(start))
}

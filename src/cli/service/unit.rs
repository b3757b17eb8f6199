//! The text of the systemd unit. `config/hermod.service` is that of `hermod service install --system --print`.

use std::path::{Path, PathBuf};

/// Whose unit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitScope {
    /// Of the user, whose manager starts it.
    User,
    /// Of the machine.
    System,
}

/// What the unit starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnitSettings {
    pub(super) scope: UnitScope,
    /// The program.
    pub(super) program: PathBuf,
    /// Where it listens; the configuration says it by default.
    pub(super) listen: Option<String>,
    /// The state directory; `None` is that of the scope.
    pub(super) state: Option<PathBuf>,
    /// The workspace of runs that name none, for a unit of a user.
    pub(super) workspace: PathBuf,
    /// Whether the pause between restarts may grow: systemd 254 or newer.
    pub(super) has_backoff: bool,
}

const UNIT: &str = "\
[Unit]
Description=Hermod, a durable runtime of agents
Documentation=https://github.com/hermod-agent/hermod
";

const NETWORK: &str = "\
After=network-online.target
Wants=network-online.target
";

const SERVICE: &str = "\
# It is started again however often it ends: Hermod finds out itself which run makes it crash.
StartLimitIntervalSec=0

[Service]
Type=notify
";

/// What both scopes have.
const COMMON: &str = "\
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
# Wrong usage, a denied store and an unusable configuration do not go away by themselves.
RestartPreventExitStatus=2 77 78
RestartSec=1
";

const BACKOFF: &str = "\
RestartSteps=6
RestartMaxDelaySec=60
";

const LIMITS: &str = "\
# The store's writer and the actors must answer twice in this time.
WatchdogSec=60
# After a power loss the store is checked first.
TimeoutStartSec=600
TimeoutStopSec=30
LimitNOFILE=65536
# Shell commands of suspended runs go on, and the next start takes their results.
KillMode=process
# A command that takes too much memory must not end the service.
OOMPolicy=continue

# Commands of models have a sandbox of their own, with user and mount namespaces, a /proc, Landlock and seccomp. So there is
# no RestrictNamespaces, ProtectKernelTunables, ProtectKernelLogs, ProtectProc, SystemCallFilter or MemoryDenyWriteExecute
# here, and no PrivateTmp: its files would go with a restart, while commands go on.
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
";

/// What needs the rights of the machine's manager.
const SYSTEM_PROTECTION: &str = "\
ProtectSystem=full
ProtectHome=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelModules=yes
PrivateDevices=yes
CapabilityBoundingSet=
AmbientCapabilities=
";

impl UnitSettings {
    /// The text of the unit, or why a path cannot be in one.
    pub(super) fn render(&self) -> Result<String, String> {
        let mut unit = UNIT.to_owned();
        if self.scope == UnitScope::System {
            unit += NETWORK;
        }
        unit += SERVICE;
        unit += &self.places()?;
        unit += COMMON;
        if self.has_backoff {
            unit += BACKOFF;
        }
        unit += LIMITS;
        if self.scope == UnitScope::System {
            unit += SYSTEM_PROTECTION;
        }
        let target = if self.scope == UnitScope::System { "multi-user.target" } else { "default.target" };
        Ok(unit + &format!("\n[Install]\nWantedBy={target}\n"))
    }

    /// Where it works, and what it starts.
    fn places(&self) -> Result<String, String> {
        let mut lines = Vec::new();
        if self.scope == UnitScope::System {
            lines.push("User=hermod".to_owned());
            lines.push("StateDirectory=hermod/state hermod/workspace".to_owned());
            lines.push("StateDirectoryMode=0700".to_owned());
        }
        lines.push(format!("WorkingDirectory={}", specifiers(&self.workspace)?));
        let state = match (&self.state, self.scope) {
            (Some(state), _) => Some(state.as_path()),
            (None, UnitScope::System) => Some(Path::new("/var/lib/hermod/state")),
            (None, UnitScope::User) => None,
        };
        if let Some(state) = state {
            lines.push(format!("Environment={}", quoted(&format!("HERMOD_HOME={}", specifiers(state)?))));
        }
        lines.push(
            "# The keys of providers, as NAME=VALUE; a configuration can name other sources.".to_owned(),
        );
        lines.push("EnvironmentFile=-%E/hermod/keys.env".to_owned());
        let program = quoted(&specifiers(&self.program)?.replace('$', "$$"));
        let listen = self.listen.as_ref().map(|listen| format!(" --listen {listen}")).unwrap_or_default();
        lines.push(format!("ExecStart={program} serve{listen}"));
        Ok(lines.join("\n") + "\n")
    }
}

/// A path in which systemd expands nothing.
fn specifiers(path: &Path) -> Result<String, String> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    let text =
        text.ok_or_else(|| format!("{}: a unit can name no such path; use another", path.display()))?;
    if !path.is_absolute() {
        return Err(format!("{text}: it is not absolute"));
    }
    Ok(text.replace('%', "%%"))
}

/// A word for systemd, in quotes if it needs them.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\');
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> UnitSettings {
        UnitSettings {
            scope: UnitScope::System,
            program: "/usr/local/bin/hermod".into(),
            listen: None,
            state: None,
            workspace: "/var/lib/hermod/workspace".into(),
            has_backoff: false,
        }
    }

    #[test]
    fn the_example_is_the_unit_of_the_machine() {
        let example = include_str!("../../../config/hermod.service");
        let (comments, unit) = example.split_at(example.find("[Unit]").unwrap());
        assert_eq!(unit, system().render().unwrap());
        assert!(comments.lines().all(|line| line.starts_with('#')), "{comments}");
    }

    #[test]
    fn a_unit_of_a_user_asks_for_no_rights_of_the_machine() {
        let user = UnitSettings {
            scope: UnitScope::User,
            program: "/home/a b/100%/$bin/hermod".into(),
            listen: Some("127.0.0.1:1".to_owned()),
            state: Some("/home/a b/\"s\"".into()),
            workspace: "/home/a b/w".into(),
            has_backoff: true,
        };
        let unit = user.render().unwrap();
        for line in [
            "WorkingDirectory=/home/a b/w",
            r#"Environment="HERMOD_HOME=/home/a b/\"s\"""#,
            r#"ExecStart="/home/a b/100%%/$$bin/hermod" serve --listen 127.0.0.1:1"#,
            "RestartMaxDelaySec=60",
            "WantedBy=default.target",
        ] {
            assert!(unit.lines().any(|found| found == line), "{line}: {unit}");
        }
        for key in ["User=", "ProtectSystem=", "CapabilityBoundingSet=", "StateDirectory="] {
            assert!(!unit.lines().any(|line| line.starts_with(key)), "{key}: {unit}");
        }
    }

    #[test]
    fn a_path_that_would_be_a_line_of_its_own_is_refused() {
        let check = |path: &str| {
            let refused = UnitSettings { state: Some(path.into()), ..system() }.render();
            assert!(refused.is_err(), "{path}");
        };
        check("/a\nExecStart=/bin/sh");
        check("relative");
    }
}

//! Commands of systemd. Each that changes something is printed before it runs.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;

use super::unit::UnitScope;
use crate::{
    cli::{CliError, Exit, print_note},
    discovery::Variables,
};

/// The name of the unit.
pub(super) const UNIT_NAME: &str = "hermod.service";
/// It exists while systemd is the machine's init process.
const BOOTED: &str = "/run/systemd/system";
/// The first version whose pause between restarts can grow.
const BACKOFF_VERSION: u32 = 254;

/// The manager of units of one scope.
#[derive(Debug)]
pub(super) struct Systemd {
    scope: UnitScope,
    /// The folder of the user's units.
    user_units: Option<PathBuf>,
}

impl Systemd {
    /// The manager of this scope, if systemd runs here.
    pub(super) fn find(scope: UnitScope, variables: &Variables) -> Result<Self, CliError> {
        if !Path::new(BOOTED).exists() {
            return Err(CliError {
                exit: Exit::Failed,
                text: format!(
                    "systemd does not run here ({BOOTED} is missing); let another supervisor run `hermod serve`, or print the \
                     unit with `hermod service install --print`"
                ),
            });
        }
        let folder = |name: &str| variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
        let user_units = config.map(|config| config.join("systemd/user"));
        if scope == UnitScope::User && user_units.is_none() {
            let text =
                "there is no place for a unit of this user: set XDG_CONFIG_HOME or HOME, or add --system";
            return Err(CliError { exit: Exit::Config, text: text.to_owned() });
        }
        Ok(Self { scope, user_units })
    }

    /// The path of the unit.
    pub(super) fn unit_path(&self) -> PathBuf {
        let system = PathBuf::from("/etc/systemd/system");
        let folder = match self.scope {
            UnitScope::User => self.user_units.clone().unwrap_or(system),
            UnitScope::System => system,
        };
        folder.join(UNIT_NAME)
    }

    /// Runs `systemctl` with these arguments, after saying so.
    pub(super) async fn run(&self, arguments: &[&str]) -> Result<(), CliError> {
        let arguments = self.with_scope(arguments);
        print_note(format!("runs      systemctl {}", arguments.join(" ")));
        let output = Command::new("systemctl").args(&arguments).stdin(Stdio::null()).output().await;
        let output = output.map_err(|error| no_program("systemctl", &error))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let text = format!("systemctl {}: {}", arguments.join(" "), stderr.trim());
        Err(CliError { exit: Exit::Failed, text })
    }

    /// Shows what `systemctl` prints.
    pub(super) async fn show(&self, arguments: &[&str]) -> Result<Exit, CliError> {
        pass_through("systemctl", &self.with_scope(arguments)).await
    }

    /// Shows the log of the unit.
    pub(super) async fn logs(&self, lines: u32, follow: bool) -> Result<Exit, CliError> {
        let lines = lines.to_string();
        let unit = if self.scope == UnitScope::User { "--user-unit" } else { "--unit" };
        let follow: &[&str] = if follow { &["--follow"] } else { &["--no-pager"] };
        pass_through("journalctl", &[&[unit, UNIT_NAME, "--lines", &lines], follow].concat()).await
    }

    /// Whether the pause between restarts may grow.
    pub(super) async fn has_backoff(&self) -> bool {
        let output = Command::new("systemctl").arg("--version").output().await;
        output.is_ok_and(|output| has_backoff(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Fails if the user of the machine's unit does not exist.
    pub(super) async fn check_user(&self) -> Result<(), CliError> {
        let output = Command::new("id").args(["--user", "hermod"]).output().await;
        if output.map_err(|error| no_program("id", &error))?.status.success() {
            return Ok(());
        }
        Err(CliError::usage(
            "there is no user `hermod`; make it with `useradd --system --home-dir /var/lib/hermod hermod`, or leave --system out",
        ))
    }

    fn with_scope<'a>(&self, arguments: &[&'a str]) -> Vec<&'a str> {
        let scope: &[&str] = if self.scope == UnitScope::User { &["--user"] } else { &[] };
        [scope, arguments].concat()
    }
}

fn has_backoff(version: &str) -> bool {
    let number = version.split_whitespace().nth(1).and_then(|number| number.parse::<u32>().ok());
    number.is_some_and(|number| number >= BACKOFF_VERSION)
}

/// Runs a program whose output is this one's.
async fn pass_through(program: &str, arguments: &[&str]) -> Result<Exit, CliError> {
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).status().await;
    let status = status.map_err(|error| no_program(program, &error))?;
    Ok(if status.success() { Exit::Ok } else { Exit::Failed })
}

fn no_program(program: &str, error: &std::io::Error) -> CliError {
    CliError { exit: Exit::Failed, text: format!("{program} cannot be run: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_says_what_a_unit_may_have() {
        assert!(!has_backoff("systemd 252 (252.38-1~deb12u1)\n+PAM"));
        assert!(has_backoff("systemd 254 (254.5)\n"));
        assert!(!has_backoff(""));
    }

    #[test]
    fn each_scope_has_its_folder() {
        let check = |scope, expect: &str| {
            let systemd = Systemd { scope, user_units: Some("/home/u/.config/systemd/user".into()) };
            assert_eq!(systemd.unit_path(), Path::new(expect));
        };
        check(UnitScope::User, "/home/u/.config/systemd/user/hermod.service");
        check(UnitScope::System, "/etc/systemd/system/hermod.service");
    }
}

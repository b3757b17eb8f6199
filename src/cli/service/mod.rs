//! `hermod service`: the systemd unit of `hermod serve`. It says what it writes, and which commands it runs.

mod systemd;
mod unit;
mod unit_file;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};

use super::{CliError, Exit, examples, print, print_note};
use crate::{
    discovery::Variables,
    files::{self, IoResult as _},
    host::{create_state_dir, state_dir},
};
use systemd::{Systemd, UNIT_NAME};
use unit::{UnitScope, UnitSettings};
use unit_file::write_unit;

/// Run the service under systemd, as a unit
#[derive(Debug, Args)]
#[command(after_help = examples::SERVICE)]
pub(crate) struct ServiceArgs {
    #[command(subcommand)]
    command: ServiceCommand,
}

#[derive(Debug, Subcommand)]
enum ServiceCommand {
    /// Write the unit, enable it and start it
    Install(InstallArgs),
    /// Show what systemd says about the unit
    Status(ScopeArgs),
    /// Show the log of the service
    Logs {
        #[command(flatten)]
        scope: ScopeArgs,
        /// Go on with new lines
        #[arg(short, long)]
        follow: bool,
        /// At most so many lines, the latest
        #[arg(long, default_value_t = 100)]
        lines: u32,
    },
    /// Stop the unit and remove it; the store stays
    Uninstall(ScopeArgs),
}

#[derive(Debug, Clone, Copy, Args)]
struct ScopeArgs {
    /// The unit of the machine, not of this user
    #[arg(long)]
    system: bool,
}

#[derive(Debug, Args)]
struct InstallArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// Where to listen [default: service.listen]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The state directory [default: $HERMOD_HOME of this command, or that of the user]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// The program that the unit starts, for packages [default: this program, where it is now]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Print the unit, and change nothing
    #[arg(long)]
    print: bool,
    /// Replace a unit that differs
    #[arg(long)]
    force: bool,
}

impl ScopeArgs {
    const fn unit_scope(self) -> UnitScope {
        if self.system { UnitScope::System } else { UnitScope::User }
    }
}

/// Installs, shows or removes the unit.
pub(crate) async fn execute(args: ServiceArgs, variables: &Variables) -> Result<Exit, CliError> {
    match args.command {
        ServiceCommand::Install(args) => install(&args, variables).await,
        ServiceCommand::Uninstall(scope) => uninstall(scope.unit_scope(), variables).await,
        ServiceCommand::Status(scope) => {
            Systemd::find(scope.unit_scope(), variables)?.show(&["status", "--no-pager", UNIT_NAME]).await
        }
        ServiceCommand::Logs { scope, follow, lines } => {
            Systemd::find(scope.unit_scope(), variables)?.logs(lines, follow).await
        }
    }
}

async fn install(args: &InstallArgs, variables: &Variables) -> Result<Exit, CliError> {
    let scope = args.scope.unit_scope();
    let settings = settings(args, variables)?;
    if args.print {
        print(&settings.render().map_err(CliError::usage)?)?;
        return Ok(Exit::Ok);
    }
    let systemd = Systemd::find(scope, variables)?;
    let settings = UnitSettings { has_backoff: systemd.has_backoff().await, ..settings };
    let unit = settings.render().map_err(CliError::usage)?;
    if scope == UnitScope::System {
        systemd.check_user().await?;
    } else {
        for folder in settings.state.iter().chain([&settings.workspace]) {
            create_state_dir(folder)?;
        }
    }
    let path = systemd.unit_path();
    write_unit(&path, &unit, args.force)?;
    print_note(format!("wrote     {}", path.display()));
    systemd.run(&["daemon-reload"]).await?;
    systemd.run(&["enable", UNIT_NAME]).await?;
    systemd.run(&["restart", UNIT_NAME]).await?;
    if scope == UnitScope::User {
        print_note("note      `loginctl enable-linger` lets it run while you are not logged in");
    }
    print("the service runs; `hermod status` shows how it is")?;
    Ok(Exit::Ok)
}

async fn uninstall(scope: UnitScope, variables: &Variables) -> Result<Exit, CliError> {
    let systemd = Systemd::find(scope, variables)?;
    let path = systemd.unit_path();
    if !path.exists() {
        return Err(CliError::usage(format!("{}: there is no unit to remove", path.display())));
    }
    systemd.run(&["disable", "--now", UNIT_NAME]).await?;
    files::remove(&path).at(&path)?;
    print_note(format!("removed   {}", path.display()));
    systemd.run(&["daemon-reload"]).await?;
    print("the service is removed; its store stays")?;
    Ok(Exit::Ok)
}

/// What the unit starts: this program or the one that was named, with the state directory that was named.
fn settings(args: &InstallArgs, variables: &Variables) -> Result<UnitSettings, CliError> {
    let scope = args.scope.unit_scope();
    let program = args.program.clone().map_or_else(std::env::current_exe, Ok);
    let program = program
        .map_err(|error| CliError::internal(format!("the path of this program is not known: {error}")))?;
    let named = match (&args.store, variables.get("HERMOD_HOME").filter(|home| !home.is_empty())) {
        (Some(store), _) => Some(store.clone()),
        (None, Some(home)) if scope == UnitScope::User => Some(PathBuf::from(home)),
        (None, _) => None,
    };
    let state = named
        .map(|state| {
            std::path::absolute(&state).map_err(|error| CliError::usage(format!("--store: {error}")))
        })
        .transpose()?;
    let workspace = match (scope, &state) {
        (UnitScope::System, _) => PathBuf::from("/var/lib/hermod/workspace"),
        // Beside the state directory, in which no run may work.
        (UnitScope::User, Some(state)) => beside(state),
        (UnitScope::User, None) => beside(&state_dir(variables)?),
    };
    let listen = args.listen.map(|listen| listen.to_string());
    Ok(UnitSettings { scope, program, listen, state, workspace, has_backoff: false })
}

fn beside(state: &std::path::Path) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_owned();
    name.push("-workspace");
    state.with_file_name(name)
}

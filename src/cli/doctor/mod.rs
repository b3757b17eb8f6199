//! `hermod doctor`: examines an installation. Each check is a function of `checks/` and its line in `CHECKS`.

mod check;
mod checks;
mod page;
mod sandbox;

use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::time::timeout;

use self::check::{Check, CheckResult, Examination, Finding};
use super::{CliError, Exit, examples, output::print_toned, print_json, terminal::Palette};
use crate::discovery::Variables;

/// Examine the installation: each thing that is wrong, with its remedy
///
/// It works without a configuration and without a store, and while a service runs. Keys are tested by asking for the list
/// of models, or by a call of a few tokens where that tells nothing. The exit code is 1 if a check has failed.
#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR, args_conflicts_with_subcommands = true)]
pub(crate) struct DoctorArgs {
    #[command(subcommand)]
    command: Option<DoctorCommand>,
    /// Ask no provider
    #[arg(long)]
    offline: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum DoctorCommand {
    /// Try each protection of the sandbox of shell commands
    Sandbox {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// All checks, in the order of the report.
const CHECKS: &[Check] = &[
    Check { name: "configuration", limit_s: 5, run: checks::configuration },
    Check { name: "models", limit_s: 10, run: checks::models },
    Check { name: "keys", limit_s: 60, run: checks::keys },
    Check { name: "secrets", limit_s: 10, run: checks::secrets },
    Check { name: "state", limit_s: 5, run: checks::state },
    Check { name: "space", limit_s: 5, run: checks::space },
    Check { name: "fsync", limit_s: 20, run: checks::fsync },
    Check { name: "store", limit_s: 60, run: checks::store },
    Check { name: "service", limit_s: 30, run: checks::service },
    Check { name: "clock", limit_s: 30, run: checks::clock },
    Check { name: "sandbox", limit_s: 20, run: checks::sandbox },
    Check { name: "open files", limit_s: 5, run: checks::open_files },
    Check { name: "hooks", limit_s: 5, run: checks::hooks },
    Check { name: "targets", limit_s: 5, run: checks::targets },
    Check { name: "schedules", limit_s: 30, run: checks::schedules },
];

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct DoctorReport<'r> {
    /// The worst result.
    result: CheckResult,
    checks: &'r [Finding],
}

/// Examines the installation, or tries the sandbox alone.
pub(crate) async fn execute(args: DoctorArgs, variables: &Variables) -> Result<Exit, CliError> {
    if let Some(DoctorCommand::Sandbox { json }) = args.command {
        sandbox::execute(json, variables).await?;
        return Ok(Exit::Ok);
    }
    let examination = Examination::new(args.offline, variables);
    let mut findings = Vec::new();
    for check in CHECKS {
        let limit = std::time::Duration::from_secs(check.limit_s);
        let found = timeout(limit, (check.run)(&examination)).await;
        findings.extend(
            found
                .unwrap_or_else(|_| vec![too_slow(check)])
                .into_iter()
                .map(|finding| Finding { check: check.name, ..finding }),
        );
    }
    let worst = findings.iter().map(|finding| finding.result).max().unwrap_or(CheckResult::Ok);
    if args.json {
        print_json(&DoctorReport { result: worst, checks: &findings })?;
    } else {
        print_toned(&page::lines(&findings), Palette::at_stdout(variables)).map(drop)?;
    }
    Ok(if worst == CheckResult::Fail { Exit::Failed } else { Exit::Ok })
}

fn too_slow(check: &Check) -> Finding {
    Finding::fail(
        check.name,
        format!("it has taken longer than {} s", check.limit_s),
        "see whether the disk or the network hangs, and examine it again",
    )
}

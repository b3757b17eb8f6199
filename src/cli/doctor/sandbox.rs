//! `hermod doctor sandbox`: tries each protection of the sandbox of shell commands.

use std::env;

use serde_json::{Value, json};

use crate::{
    cli::{CliError, print_as, table},
    config::{Config, SandboxModeName},
    discovery::Variables,
    host,
    process::sandbox::{NetworkAccess, ProbeOutcome, Protection, SandboxTrial, probe},
};

/// Tries the protections, and prints what came of it.
pub(super) async fn execute(json: bool, variables: &Variables) -> Result<(), CliError> {
    let config = Config::read(variables)?;
    let state = host::configured_state_dir(variables)?;
    let failed = |error: std::io::Error| CliError::internal(format!("the sandbox cannot be tried: {error}"));
    let folder = state.join(format!("doctor-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(failed)?;
    let program = env::current_exe().map_err(failed)?;
    let outcomes = probe(&program, &folder).await;
    let trial = SandboxTrial::run(&program, &folder).await;
    crate::files::remove_tree(&folder).map_err(failed)?;
    let (outcomes, trial) = (outcomes.map_err(failed)?, trial.map_err(failed)?);
    print_as(json, &report(&config, &outcomes, trial), |_| format_report(&config, &outcomes, trial))
}

fn report(config: &Config, outcomes: &[(Protection, ProbeOutcome)], trial: SandboxTrial) -> Value {
    let protections: Vec<_> = outcomes
        .iter()
        .map(|(protection, outcome)| json!({ "protection": protection, "outcome": outcome }))
        .collect();
    json!({
        "mode": mode(config),
        "network": network(config),
        "may_list_hosts": trial.may_limit_network,
        "missing": trial.status.missing(),
        "protections": protections,
    })
}

fn format_report(config: &Config, outcomes: &[(Protection, ProbeOutcome)], trial: SandboxTrial) -> String {
    let row = |(protection, outcome): &(Protection, ProbeOutcome)| {
        [describe(*protection).to_owned(), verdict(*outcome).to_owned()]
    };
    let rows: Vec<_> = outcomes.iter().map(row).collect();
    let possible = outcomes.iter().filter(|(_, outcome)| *outcome == ProbeOutcome::Possible).count();
    let summary = match (possible, config.sandbox.mode) {
        (_, SandboxModeName::Off) => {
            "The sandbox is off: sandbox.mode = \"workspace\" turns it on.".to_owned()
        }
        (0, _) => "This kernel enforces all of it.".to_owned(),
        (count, _) => format!(
            "{count} of these are possible: a newer kernel, or one with Landlock and seccomp, refuses them."
        ),
    };
    let mode = format!("sandbox.mode = \"{}\", sandbox.network = {}", mode(config), network(config));
    let hosts = if trial.may_limit_network {
        "sandbox.network can be a list of hosts here."
    } else {
        "sandbox.network can be no list of hosts here: this system allows no network namespace."
    };
    let missing = trial.status.missing();
    let missing = if missing.is_empty() {
        String::new()
    } else {
        format!("This kernel lacks {}.\n", missing.join(" and "))
    };
    format!(
        "{}\n{mode}\n{hosts}\n{missing}{summary}\n",
        table::render(["COMMANDS IN A SANDBOX", "RESULT"], &rows)
    )
}

fn mode(config: &Config) -> &'static str {
    match config.sandbox.mode {
        SandboxModeName::Off => "off",
        SandboxModeName::Workspace => "workspace",
        SandboxModeName::ReadOnly => "read-only",
        SandboxModeName::Required => "required",
    }
}

fn network(config: &Config) -> Value {
    match &config.sandbox.network.0 {
        NetworkAccess::Off => "off".into(),
        NetworkAccess::On => "on".into(),
        NetworkAccess::Hosts(hosts) => hosts.iter().map(ToString::to_string).collect(),
    }
}

fn describe(protection: Protection) -> &'static str {
    match protection {
        Protection::WriteOutside => "write outside of the workspace",
        Protection::ChangeModeOutside => "change modes of files outside of the workspace",
        Protection::ReadHidden => "read the state directory",
        Protection::ReadProcess => "read the variables of other processes",
        Protection::Signal => "signal other processes",
        Protection::AbstractSocket => "connect to abstract sockets",
        Protection::PathSocket => "connect to sockets with a path",
        Protection::Tcp => "connect to the network",
        Protection::Udp => "send datagrams",
        Protection::Namespace => "make a user namespace",
        Protection::NewPrivileges => "gain privileges by a program",
    }
}

fn verdict(outcome: ProbeOutcome) -> &'static str {
    match outcome {
        ProbeOutcome::Refused => "refused",
        ProbeOutcome::Possible => "POSSIBLE",
        ProbeOutcome::RefusedAnyway => "refused, also without a sandbox",
    }
}

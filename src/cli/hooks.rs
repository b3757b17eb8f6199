//! `hermod hooks`: lists the configured hooks with how they are doing, tries one, and enables one again.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    CliError, Exit, examples, operate, print_as,
    table::{self, or_dash},
};
use crate::{
    config::Config,
    control::{ControlRequest, ControlResponse},
    discovery::Variables,
    files::{IoResult as _, off_thread, read_regular_text},
    hooks::{ConfiguredHooks, Hook, HookName},
    host::{Identifier, StoreClient, unexpected_response},
    view::{HookTrialView, HookView},
};

/// Most bytes of an event in a file.
const MAX_EVENT_BYTES: u64 = 1 << 20;

/// The hooks of the configuration
#[derive(Debug, Args)]
#[command(after_help = examples::HOOKS)]
pub(crate) struct HooksArgs {
    #[command(subcommand)]
    command: HooksCommand,
}

#[derive(Debug, Subcommand)]
enum HooksCommand {
    /// List the hooks by priority, and how they are doing in a running service
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Let the running service call a hook again that has failed too often
    ///
    /// An observer is told of what it has missed. The service tries such a hook by itself too, but seldom.
    Enable {
        /// The hook
        #[arg(value_name = "NAME")]
        name: Identifier,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Call a hook with an example of each of its points and events, and print what it answers
    ///
    /// The exit code is 1 if the hook has failed. A refusal is no failure.
    Test {
        /// The hook
        #[arg(value_name = "NAME")]
        name: Identifier,
        /// A file with the event in place of examples: a JSON object; its `name` tells the point
        #[arg(long, value_name = "FILE")]
        event: Option<PathBuf>,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

/// Lists the hooks, or tries one.
pub(crate) async fn execute(args: &HooksArgs, variables: &Variables) -> Result<Exit, CliError> {
    match &args.command {
        HooksCommand::List { json } => {
            print_as(*json, &list(variables).await?, |hooks| format_list(hooks))?;
            Ok(Exit::Ok)
        }
        HooksCommand::Enable { name, json } => {
            print_as(*json, &enable(name, variables).await?, |hook| {
                format!("{} is called again", hook.name)
            })?;
            Ok(Exit::Ok)
        }
        HooksCommand::Test { name, event, json } => {
            let trials = test(name, event.as_ref(), variables).await?;
            print_as(*json, &trials, |trials| format_trials(trials))?;
            let has_failed = trials.iter().any(|trial| trial.error.is_some());
            Ok(if has_failed { Exit::Failed } else { Exit::Ok })
        }
    }
}

/// The hooks of the running service; without one, those of the configuration.
async fn list(variables: &Variables) -> Result<Vec<HookView>, CliError> {
    let client = StoreClient::new(variables)?;
    // An owner that is no service refuses the request; its hooks are not shown.
    if let Some(mut owner) = client.owner().await?
        && let Ok(ControlResponse::ServiceStatus(status)) =
            owner.request(&ControlRequest::ServiceStatus {}, |_| Ok(())).await
    {
        return Ok(status.hooks);
    }
    let hooks = configured(variables, client.state())?;
    let view = |hook: &Arc<Hook>| HookView { state: None, ..hook.view() };
    Ok(hooks.hooks().iter().map(view).collect())
}

/// The hook, after the service was told to call it again.
async fn enable(name: &str, variables: &Variables) -> Result<HookView, CliError> {
    let client = StoreClient::new(variables)?;
    let mut owner = operate::service(&client, "the next one calls all hooks").await?;
    let request = ControlRequest::HooksEnable { name: name.to_owned() };
    let ControlResponse::Hook(hook) = operate::ask(&mut owner, &request).await? else {
        return Err(unexpected_response().into());
    };
    Ok(*hook)
}

fn configured(variables: &Variables, state: &std::path::Path) -> Result<ConfiguredHooks, CliError> {
    Ok(ConfiguredHooks::new(&Config::read(variables)?, variables, state))
}

async fn test(
    name: &str,
    event: Option<&PathBuf>,
    variables: &Variables,
) -> Result<Vec<HookTrialView>, CliError> {
    let client = StoreClient::new(variables)?;
    let hooks = configured(variables, client.state())?;
    let hook = hooks.find(name).map_err(CliError::usage)?;
    let event = match event {
        Some(path) => Some(read_event(path).await?),
        None => None,
    };
    let named = event.as_ref().and_then(|event| event["name"].as_str()).map(|name| {
        HookName::find(name)
            .ok_or_else(|| CliError::usage(format!("the event is named `{name}`, and there is no such hook")))
    });
    let points = match named {
        Some(name) => vec![name?],
        None => hook.on.clone(),
    };
    let mut trials = Vec::new();
    for point in points {
        trials.push(hook.try_out(point, event.as_ref()).await);
    }
    Ok(trials)
}

async fn read_event(path: &PathBuf) -> Result<Value, CliError> {
    let (read, shown) = (path.clone(), path.display().to_string());
    let text = off_thread(move || read_regular_text(&read, MAX_EVENT_BYTES)).await.at(path);
    let text = text.map_err(|error| CliError::usage(error.to_string()))?;
    let event: Value = serde_json::from_str(&text)
        .map_err(|error| CliError::usage(format!("{shown} is no JSON: {error}")))?;
    match event.is_object() {
        true => Ok(event),
        false => Err(CliError::usage(format!("{shown} is no JSON object; give the event as one"))),
    }
}

fn format_list(hooks: &[HookView]) -> String {
    let row = |hook: &HookView| {
        let state = hook.state.map(<&'static str>::from);
        let retry =
            hook.retry_in_s.map(|s| format!("in {}", humantime::format_duration(Duration::from_secs(s))));
        [
            hook.name.clone(),
            hook.on.join(","),
            hook.kind.clone(),
            hook.priority.to_string(),
            or_dash(state),
            or_dash(retry),
            or_dash(hook.last_error.as_ref()),
        ]
    };
    let rows: Vec<_> = hooks.iter().map(row).collect();
    table::render(["HOOK", "ON", "KIND", "PRIORITY", "STATE", "NEXT CALL", "LAST ERROR"], &rows)
}

fn format_trials(trials: &[HookTrialView]) -> String {
    let line = |trial: &HookTrialView| {
        let result = match (trial.verdict, &trial.error) {
            (_, Some(error)) => format!("failed: {error}"),
            (Some(verdict), None) => verdict.to_owned(),
            (None, None) => String::new(),
        };
        let reason = trial.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let replacement = trial.replacement.as_ref().map(|value| format!(": {value}")).unwrap_or_default();
        format!("{}  {result}{reason}{replacement}", trial.name)
    };
    trials.iter().map(line).collect::<Vec<_>>().join("\n")
}

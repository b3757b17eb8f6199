//! The options of `hermod schedules add`.

use std::{io, path::PathBuf};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use hermod_actors::model::{MAX_SCHEDULE_TEXT_BYTES, Misfire, Overlap, ScheduleName};

use super::schedule_name;
use crate::{
    cli::CliError,
    control::ScheduleChange,
    files::{read_limited, text as utf8},
    host::Identifier,
    schedule::ScheduleWords,
};

#[derive(Debug, Args)]
pub(super) struct AddScheduleArgs {
    /// Its name: lower-case letters, digits, `-` and `_`
    #[arg(value_parser = schedule_name)]
    name: ScheduleName,
    /// Due at this distance, like 90s, 15m or 1d, counted from the beginning of 1970 in UTC
    #[arg(long, value_name = "TIME", required_unless_present_any = ["cron", "at"])]
    every: Option<Identifier>,
    /// Due at the times of a cron expression: five fields, or six with seconds in front; or @daily and the like
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    cron: Option<Identifier>,
    /// Due once, at this time, like 2030-01-31T06:00
    #[arg(long, value_name = "TIME", conflicts_with_all = ["every", "cron"])]
    at: Option<Identifier>,
    /// The time zone of --cron, --at and --ends-at, like Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<Identifier>,
    /// What is to be done; `-` takes standard input
    #[arg(long)]
    text: String,
    /// It is the heartbeat of a standing agent: one session, no answer needed, and NO_REPLY says that all is well
    #[arg(long)]
    heartbeat: bool,
    /// The agent [default: default]
    #[arg(long, value_name = "NAME")]
    agent: Option<Identifier>,
    /// The key of the session of all its runs [default: a new session for each]
    #[arg(long, value_name = "KEY")]
    session: Option<Identifier>,
    /// The model [default: that of the agent]
    #[arg(long)]
    model: Option<Identifier>,
    /// The folder in which the tools work [default: that of the agent, else that of the service]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// A target that gets the results, and notices of a pause; may be repeated [default: those of the agent]
    #[arg(long, value_name = "TARGET")]
    deliver_to: Vec<Identifier>,
    /// Active time after which a run is timed out, like 10m
    #[arg(long, value_name = "TIME")]
    timeout: Option<Identifier>,
    /// Limits of each run, like iterations=20,usd=0.50
    #[arg(long, value_name = "LIMITS")]
    budget: Option<Identifier>,
    /// What happens to late occurrences, such as after downtime [default: run_once]
    #[arg(long, value_parser = names(&Misfire::ALL.map(Misfire::name)))]
    misfire: Option<String>,
    /// How late an occurrence may begin without being a misfire [default: 1m]
    #[arg(long, value_name = "TIME")]
    grace: Option<Identifier>,
    /// What happens to an occurrence while an earlier run is under way [default: skip]
    #[arg(long, value_parser = names(&Overlap::ALL.map(Overlap::name)))]
    overlap: Option<String>,
    /// The longest delay that is added, to spread runs
    #[arg(long, value_name = "TIME")]
    jitter: Option<Identifier>,
    /// The time from which it is not due any more
    #[arg(long, value_name = "TIME")]
    ends_at: Option<Identifier>,
    /// Pause it after so many failed runs in a row
    #[arg(long, value_name = "N")]
    pause_after: Option<u32>,
    /// Change a schedule that there is already
    #[arg(long)]
    replace: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn names(names: &[&'static str]) -> impl TypedValueParser<Value = String> + use<> {
    PossibleValuesParser::new(names.to_vec())
}

/// The schedule that is made: its name, whether JSON is printed, and the change.
pub(super) fn change(args: AddScheduleArgs) -> Result<(ScheduleName, bool, ScheduleChange), CliError> {
    let text = match args.text.as_str() {
        "-" => read_limited(io::stdin().lock(), MAX_SCHEDULE_TEXT_BYTES as u64)
            .and_then(utf8)
            .map_err(|error| CliError::usage(format!("--text -: standard input cannot be read: {error}")))?,
        _ => args.text,
    };
    let workspace = args.workspace.map(|folder| {
        std::path::absolute(&folder)
            .map_err(|error| CliError::usage(format!("--workspace {}: {error}", folder.display())))
    });
    let owned = |option: Option<Identifier>| option.map(String::from);
    let targets: Vec<String> = args.deliver_to.into_iter().map(String::from).collect();
    let words = ScheduleWords {
        every: owned(args.every),
        cron: owned(args.cron),
        at: owned(args.at),
        tz: owned(args.tz),
        text: Some(text),
        heartbeat: args.heartbeat,
        agent: owned(args.agent),
        session: owned(args.session),
        model: owned(args.model),
        workspace: workspace.transpose()?.map(|folder| folder.to_string_lossy().into_owned()),
        deliver_to: (!targets.is_empty()).then_some(targets),
        timeout: owned(args.timeout),
        budget: owned(args.budget),
        misfire: args.misfire,
        grace: owned(args.grace),
        overlap: args.overlap,
        jitter: owned(args.jitter),
        ends_at: owned(args.ends_at),
        pause_after: args.pause_after,
    };
    let definition = words
        .definition(&args.name)
        .map_err(|(part, reason)| CliError::usage(format!("--{}: {reason}", part.replace('_', "-"))))?;
    let change = ScheduleChange::Put { definition: Box::new(definition), replace: args.replace };
    Ok((args.name, args.json, change))
}

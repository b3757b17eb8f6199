//! `hermod schedules`: tasks that begin at a time. `add.rs` has the options of a definition, `run_now.rs` starts
//! a run, `show.rs` has what people see.

mod add;
mod run_now;
mod show;

use clap::{Args, Subcommand};
use hermod_actors::model::{ScheduleName, Timestamp};

use super::{CliError, Exit, examples, moment::parse_moment, print, print_as, print_note};
use crate::{
    config::Config,
    control::{ControlRequest, ControlResponse, ScheduleChange},
    discovery::Variables,
    host::{Identifier, StoreClient, unexpected_response},
    view::ScheduleView,
};

/// Tasks that begin at a time; `hermod serve` starts them
#[derive(Debug, Args)]
#[command(after_help = examples::SCHEDULES)]
pub(crate) struct SchedulesArgs {
    #[command(subcommand)]
    command: SchedulesCommand,
}

#[derive(Debug, Subcommand)]
enum SchedulesCommand {
    /// Make a schedule
    Add(Box<add::AddScheduleArgs>),
    /// List the schedules, and when each is due next
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one schedule with its rules
    Show(NameArgs),
    /// What became of its occurrences, the newest first
    History(HistoryArgs),
    /// Pause a schedule: its occurrences are skipped until it is resumed
    Pause {
        #[command(flatten)]
        of: NameArgs,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<Identifier>,
    },
    /// Let a paused schedule go on with its next time
    Resume(NameArgs),
    /// Run it now, beside its times, also while it is paused or an earlier run is under way
    RunNow {
        #[command(flatten)]
        of: NameArgs,
        /// Wait until the run has ended or waits for a person
        #[arg(long)]
        wait: bool,
    },
    /// Remove a schedule; its history stays
    Remove(NameArgs),
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The schedule
    #[arg(value_parser = schedule_name)]
    name: ScheduleName,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct HistoryArgs {
    /// The schedule, also one that was removed; all without it
    #[arg(value_parser = schedule_name)]
    name: Option<ScheduleName>,
    /// At most so many, the newest
    #[arg(long, visible_alias = "max", value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Only those since then: 8h, 2d, a date, or a time of RFC 3339; UTC without an offset
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<Timestamp>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// Parses the name of a schedule.
pub(crate) fn schedule_name(text: &str) -> Result<ScheduleName, String> {
    if text.trim().is_empty() {
        return Err("it is empty; give a name, or leave it out where it is optional".to_owned());
    }
    text.parse().map_err(|error| format!("`{text}` {error}"))
}

/// Lists, shows or changes schedules.
pub(crate) async fn execute(args: SchedulesArgs, variables: &Variables) -> Result<Exit, CliError> {
    let client = StoreClient::new(variables)?;
    let change = |of: NameArgs, change| change_one(of, change, variables);
    match args.command {
        SchedulesCommand::Add(args) => {
            let (name, json, made) = add::change(*args)?;
            change_one(NameArgs { name, json }, made, variables).await?;
        }
        SchedulesCommand::List { json } => {
            let request = ControlRequest::SchedulesList {};
            let ControlResponse::Schedules(schedules) = client.request(&request).await? else {
                return Err(unexpected_response().into());
            };
            if schedules.is_empty() && !json {
                print_note("no schedule; `hermod schedules add` makes one");
            }
            print_as(json, &schedules, |schedules| show::table(schedules))?;
        }
        SchedulesCommand::Show(NameArgs { name, json }) => {
            print_schedule(&schedule(&client, name).await?, json)?;
        }
        SchedulesCommand::History(args) => history(args, &client).await?,
        SchedulesCommand::Pause { of, reason } => {
            let reason = reason.map_or_else(|| "by command".to_owned(), String::from);
            change(of, ScheduleChange::Pause { reason }).await?;
        }
        SchedulesCommand::Resume(of) => change(of, ScheduleChange::Resume).await?,
        SchedulesCommand::RunNow { of, wait } => return run_now::execute(of, wait, &client).await,
        SchedulesCommand::Remove(of) => change(of, ScheduleChange::Remove).await?,
    }
    Ok(Exit::Ok)
}

async fn schedule(client: &StoreClient, name: ScheduleName) -> Result<ScheduleView, CliError> {
    let request = ControlRequest::SchedulesShow { name };
    let ControlResponse::Schedule(schedule) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    Ok(*schedule)
}

/// Changes a schedule, and prints it as it is then.
async fn change_one(
    NameArgs { name, json }: NameArgs,
    change: ScheduleChange,
    variables: &Variables,
) -> Result<(), CliError> {
    let client = StoreClient::new(variables)?;
    // A pause needs no configuration, which may be what is wrong.
    let needs_config = matches!(change, ScheduleChange::Put { .. });
    let config = needs_config.then(|| Config::read(variables)).transpose()?;
    let is_removed = change == ScheduleChange::Remove;
    let changed = client.change_schedule(&name, change, config.as_ref()).await?;
    if is_removed && !json {
        return print(&format!("removed {name}; its history stays"));
    }
    print_schedule(&changed, json)
}

fn print_schedule(schedule: &ScheduleView, json: bool) -> Result<(), CliError> {
    print_as(json, schedule, show::page)
}

async fn history(args: HistoryArgs, client: &StoreClient) -> Result<(), CliError> {
    let HistoryArgs { name, limit, since, json } = args;
    let request = ControlRequest::SchedulesHistory { name, since, max: limit };
    let ControlResponse::Occurrences(found) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    if found.is_empty() && !json {
        print_note("no occurrence yet");
    }
    print_as(json, &found, |found| show::history(found))
}

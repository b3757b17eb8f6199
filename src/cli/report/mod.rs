//! `hermod report`: what happened in a time, on one page. `sections.rs` makes the sections, `page.rs` shows them.

mod page;
mod sections;

use clap::{Args, ValueEnum};
use hermod_actors::model::Timestamp;

use self::{
    page::PageFormat,
    sections::{Section, sections},
};
use super::{
    CliError, Exit, examples, moment::parse_moment, output::print_toned, print, print_json, terminal::Palette,
};
use crate::{
    clock,
    config::Config,
    control::{AskError, ControlRequest, ControlResponse},
    discovery::Variables,
    host::{StoreClient, unexpected_response},
    view::{ReportView, ServiceStatusView},
};

/// Tell on one page what ran, what failed and why, what waits for you, and what it cost
///
/// The exit code is 0 whatever has happened, unless --fail-on says otherwise.
#[derive(Debug, Args)]
#[command(after_help = examples::REPORT)]
pub(crate) struct ReportArgs {
    /// The beginning: 8h, 2d, a date, or a time of RFC 3339; UTC without an offset
    #[arg(long, value_name = "TIME", value_parser = parse_moment, default_value = "24h")]
    since: Timestamp,
    /// The end; without it, now
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    until: Option<Timestamp>,
    /// The form of the page
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, conflicts_with = "json")]
    format: PageFormat,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// End with 1 if a run has failed, with 6 if something waits for you
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    fail_on: Vec<Alarm>,
}

/// What the exit code tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Alarm {
    /// A run has failed
    Failed,
    /// Something waits for a person
    Waiting,
}

/// Reports.
pub(crate) async fn execute(args: ReportArgs, variables: &Variables) -> Result<Exit, CliError> {
    let until = args.until.unwrap_or_else(|| clock::now().plus_ms(1));
    if until <= args.since {
        return Err(CliError::usage("--until: it is not after --since"));
    }
    let report = read(args.since, until, variables).await?;
    if args.json {
        print_json(&report)?;
    } else {
        let sections = sections(&report, clock::now());
        match args.format {
            PageFormat::Text => {
                print_toned(&page::text(&report, &sections), Palette::at_stdout(variables)).map(drop)?;
            }
            PageFormat::Markdown => print(&page::markdown(&report, &sections))?,
        }
    }
    let is_alarmed = |alarm| args.fail_on.contains(&alarm);
    Ok(if is_alarmed(Alarm::Failed) && report.failed_runs() > 0 {
        Exit::Failed
    } else if is_alarmed(Alarm::Waiting) && report.waiting.count() > 0 {
        Exit::Parked
    } else {
        Exit::Ok
    })
}

/// The page since then, as text without colours; `reword` gives a command the form that it has where the page is shown.
pub(super) async fn text_since(
    since: Timestamp,
    variables: &Variables,
    reword: impl Fn(&str) -> String,
) -> Result<String, CliError> {
    let report = read(since, clock::now().plus_ms(1), variables).await?;
    let mut sections = sections(&report, clock::now());
    for Section { items, more, .. } in &mut sections {
        let of_items = items.iter_mut().filter_map(|item| item.command.as_mut());
        for command in of_items.chain(more.iter_mut().map(|(_, command)| command)) {
            *command = reword(command);
        }
    }
    let lines = page::text(&report, &sections);
    Ok(lines.into_iter().map(|(_, line)| line + "\n").collect())
}

async fn read(since: Timestamp, until: Timestamp, variables: &Variables) -> Result<ReportView, CliError> {
    let client = StoreClient::new(variables)?;
    // A configuration that cannot be read hides its limits, not the rest.
    let limits = Config::read(variables).map(|config| config.limits.by_period()).unwrap_or_default();
    let response = client.request(&ControlRequest::Report { since, until, limits }).await?;
    let ControlResponse::Report(report) = response else { return Err(unexpected_response().into()) };
    Ok(ReportView { service: service_status(&client).await?.map(Box::new), ..*report })
}

/// The status of the service that holds the store; `None` if no service does.
pub(super) async fn service_status(client: &StoreClient) -> Result<Option<ServiceStatusView>, CliError> {
    let Some(mut owner) = client.owner().await? else { return Ok(None) };
    match owner.request(&ControlRequest::ServiceStatus {}, |_| Ok(())).await {
        Ok(ControlResponse::ServiceStatus(status)) => Ok(Some(*status)),
        // A command that holds the store is no service, and one that has ended is none any more.
        Ok(_) | Err(AskError::Disconnected | AskError::Rejected(_)) => Ok(None),
    }
}

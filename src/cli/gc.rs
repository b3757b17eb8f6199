//! `hermod gc`: has what is not needed any more removed, and prints the report. `maintenance/` and the store do the
//! work.

use clap::Args;

use super::{CliError, format::bytes, print_as, table};
use crate::{
    config::Config,
    control::{ControlRequest, ControlResponse, GcClassReport, GcReport, GcRequest},
    discovery::Variables,
    host::{StoreClient, unexpected_response},
};

/// Remove what is not needed any more, and what is older than `[retention]` says
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Lets the owner of the store collect the garbage; without an owner, this process does.
pub(crate) async fn execute(args: &GcArgs, variables: &Variables) -> Result<(), CliError> {
    let retention = Config::read(variables)?.retention;
    let request = GcRequest {
        sessions_ms: retention.sessions.millis(),
        artifacts_ms: retention.artifacts.millis(),
        dry_run: args.dry_run,
    };
    let ControlResponse::Gc(report) =
        StoreClient::new(variables)?.request(&ControlRequest::Gc(request)).await?
    else {
        return Err(unexpected_response().into());
    };
    print_as(args.json, &report, format_report)
}

fn format_report(report: &GcReport) -> String {
    let cells = |class: &GcClassReport| {
        let kept = class.kept.iter().map(|(reason, count)| format!("{count} {reason}"));
        [
            class.class.clone(),
            class.seen.to_string(),
            class.removed.to_string(),
            bytes(class.bytes),
            kept.collect::<Vec<_>>().join(", "),
        ]
    };
    let rows: Vec<_> = report.classes.iter().map(cells).collect();
    let removed = if report.dry_run { "WOULD GO" } else { "REMOVED" };
    table::render(["CLASS", "SEEN", removed, "BYTES", "KEPT"], &rows)
}

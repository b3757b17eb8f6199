//! `hermod providers summaries`: the summary calls of the owner, and the statistics of its summarisers.

use hermod_actors::{CompressorStatus, SummarizerStatus};

use super::status::ask;
use crate::{
    cli::{
        exit::CliError,
        format,
        output::{print, print_json, print_note},
        table,
    },
    control::{ControlRequest, ControlResponse},
    host::{StoreClient, unexpected_response},
};

/// The statistics are not stored; they exist only in the owner's memory.
const NO_OWNER: &str = "no Hermod is running; statistics of summaries live in its process";

/// Shows the summary calls and the statistics.
pub(super) async fn execute(json: bool, client: &StoreClient) -> Result<(), CliError> {
    let status = match ask(&ControlRequest::SummariesStatus {}, client).await? {
        None => {
            print_note(NO_OWNER);
            if !json {
                return Ok(());
            }
            CompressorStatus::default()
        }
        Some(ControlResponse::Summaries(status)) => status,
        Some(_) => return Err(unexpected_response().into()),
    };
    if json {
        return print_json(&status);
    }
    let CompressorStatus { foreground, background, running, summarizers } = &status;
    print(&format!(
        "{running} in progress; {} waiting, of which {foreground} with a run that waits",
        foreground + background
    ))?;
    if summarizers.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = summarizers.iter().map(row).collect();
    print(&table::render(["SUMMARISER", "ATTEMPTS", "FAILED", "USUAL TIME", "USUAL SIZE", "STATE"], &rows))
}

fn row(summarizer: &SummarizerStatus) -> [String; 6] {
    [
        summarizer.model.to_string(),
        summarizer.attempts.to_string(),
        summarizer.failed.to_string(),
        table::or_dash(summarizer.usual_ms.map(format::seconds)),
        table::or_dash(summarizer.kept_percent.map(|kept| format!("{kept} %"))),
        if summarizer.is_poor { "called last" } else { "called in order" }.to_owned(),
    ]
}

//! `hermod watch`: shows what happens in the process that holds the store, to one run or to all.

use std::collections::BTreeMap;

use clap::Args;
use hermod_actors::{
    model::{Body, Record, RunId},
    port::FeedCursor,
};
use serde_json::json;

use super::{
    CliError, Exit,
    display::DisplayArgs,
    format::truncated_line,
    output::{StdoutState, print_json_line, print_over},
    print_note,
    progress::ProgressLines,
    run::{OutputArgs, watch_run},
    terminal::Charset,
};
use crate::{
    clock::rfc3339,
    discovery::Variables,
    host::{FollowedPlace, FollowedRecord, Identifier, RecordFollower, StoreClient, as_text},
    view::{EventIds, record_event},
};

/// Characters of an id by which its lines are told apart.
const ID_SUFFIX_CHARS: usize = 6;
/// Characters of a task that are shown.
const MAX_TASK_CHARS: usize = 100;
/// Unfinished runs whose calls are known by name. Older ones are forgotten.
const MAX_RUNS: usize = 1_000;

/// Watch a run until it ends, or all runs until Ctrl-C; nothing is changed by it
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// A run's id, or `last`; without it, the records of all runs from now on
    run: Option<Identifier>,
    /// Begin behind this place: the `cursor` of an event of `--json`; `0.0` is the beginning
    #[arg(long, value_name = "CURSOR", conflicts_with = "run")]
    after: Option<FeedCursor>,
    /// Print each event as a JSON line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    display: DisplayArgs,
}

/// Shows events, each once and in order, also over restarts of the process that holds the store.
pub(crate) async fn execute(
    args: WatchArgs,
    client: &StoreClient,
    variables: &Variables,
) -> Result<Exit, CliError> {
    match args.run {
        Some(run) => {
            let output = OutputArgs::of_events(args.json);
            watch_run(run.into(), (&args.display, output), client, variables).await
        }
        None => watch_all(args.after, args.json, client).await,
    }
}

async fn watch_all(after: Option<FeedCursor>, is_json: bool, client: &StoreClient) -> Result<Exit, CliError> {
    let mut lines = FeedLines { progress: BTreeMap::new() };
    if client.owner().await?.is_none() {
        print_note(
            "waiting   no process holds the store, so nothing happens; a service or a run is waited for",
        );
    }
    let mut records = RecordFollower::new(client.state().clone(), FollowedPlace::All(after));
    loop {
        let followed = records.next().await?;
        let printed = if is_json { print_event(&followed) } else { lines.print(&followed) };
        if printed? == StdoutState::Closed {
            return Ok(Exit::Ok);
        }
    }
}

fn print_event(followed: &FollowedRecord) -> Result<StdoutState, CliError> {
    let event = record_event(followed.ids, as_text(&followed.record));
    let mut event = event.map_err(|error| CliError::internal(format!("an event is no JSON: {error}")))?;
    event["cursor"] = json!(followed.cursor);
    print_json_line(&event)
}

/// Lines of text for the records of all runs.
struct FeedLines {
    progress: BTreeMap<RunId, ProgressLines>,
}

impl FeedLines {
    fn print(&mut self, followed: &FollowedRecord) -> Result<StdoutState, CliError> {
        let ids = followed.ids;
        let text = match &followed.record {
            Ok(record) => self.text(ids, record),
            Err(reason) => {
                Some(format!("unreadable record {} of session {}: {reason}\n", ids.seq, ids.session))
            }
        };
        text.map_or(Ok(StdoutState::Open), |text| print_over("", &text))
    }

    /// The lines of a record: each begins with its time, UTC, and the end of its run's id.
    fn text(&mut self, ids: EventIds, record: &Record) -> Option<String> {
        let run = ids.run?;
        let progress = self.progress.entry(run).or_insert_with(|| ProgressLines::new(run));
        let line = progress.line(record);
        let line = end_line(record, run).or(line)?;
        if matches!(&record.body, Body::RunEnded(_)) {
            self.progress.remove(&run);
        } else if self.progress.len() > MAX_RUNS {
            self.progress.pop_first();
        }
        let (id, at) = (run.to_string(), rfc3339(record.at));
        let time = at.split_once('T').map_or("", |(_, time)| time.split('.').next().unwrap_or(time));
        let start = format!("{time} {}{}", Charset::current().ellipsis(), &id[id.len() - ID_SUFFIX_CHARS..]);
        let lines: Vec<String> = line.lines().map(|line| format!("{start} {line}")).collect();
        Some(lines.join("\n") + "\n")
    }
}

/// The line of a run's acceptance or end, which `hermod run` prints in another way.
#[expect(clippy::wildcard_enum_match_arm, reason = "other records have the lines of a run")]
fn end_line(record: &Record, run: RunId) -> Option<String> {
    match &record.body {
        Body::RunAccepted(accepted) => {
            Some(format!("accepted  run {run}: {}", truncated_line(&accepted.input, MAX_TASK_CHARS)))
        }
        Body::RunEnded(ended) => Some(format!("ended     {}", ended.ended)),
        _ => None,
    }
}

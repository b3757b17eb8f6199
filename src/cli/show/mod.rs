//! `hermod show`: a run as a person reads it. `fold.rs` makes entries of its records, `text.rs` and `markdown.rs` show
//! them, each as soon as it is read.

mod entry;
mod fold;
mod markdown;
mod text;

use clap::{Args, ValueEnum};
use hermod_actors::model::{Timestamp, rfc3339};
use serde::Serialize;

pub(super) use self::markdown::{escape as escape_markdown, of_run as markdown_of};
use self::{
    entry::Entry,
    fold::TranscriptFold,
    text::{Extent, Line, labelled},
};
use super::{
    CliError, examples,
    format::{age, dollars},
    output::print_toned,
    print, print_json, runs,
    terminal::{Palette, Tone},
    waits,
};
use crate::{
    clock,
    control::{BudgetUsage, continuation},
    discovery::Variables,
    host::{DecodedRecord, Identifier, StoreClient},
    view::RunDetailView,
};

/// Show a run as one reads it: the task, the model's texts, its tool calls, what went wrong, and the answer
#[derive(Debug, Args)]
#[command(after_help = examples::SHOW)]
pub(crate) struct ShowArgs {
    /// A run's id, its beginning or its end; without it `last`, the last run that is no subagent's
    run: Option<Identifier>,
    /// All of each result, the arguments by field, and what the model thought
    #[arg(long)]
    full: bool,
    /// The form of the transcript
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, conflicts_with = "json")]
    format: TranscriptFormat,
    /// Print one JSON object, which has all of it
    #[arg(long)]
    json: bool,
}

/// The form of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum TranscriptFormat {
    /// Lines for a terminal
    #[default]
    Text,
    /// Markdown
    Markdown,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Transcript<'t> {
    #[serde(flatten)]
    run: &'t RunDetailView,
    transcript: Vec<Entry>,
}

/// Shows the run.
pub(crate) async fn execute(
    args: ShowArgs,
    client: &StoreClient,
    variables: &Variables,
) -> Result<(), CliError> {
    let id = args.run.map_or_else(|| "last".to_owned(), String::from);
    let run = client.run_detail(id).await?;
    let extent = if args.full { Extent::Full } else { Extent::Short };
    if args.json {
        let mut transcript = Vec::new();
        for_each_entry(&run, client, |entry| {
            transcript.push(entry);
            Ok(())
        })
        .await?;
        return print_json(&Transcript { run: &run, transcript });
    }
    let now = clock::now();
    match args.format {
        TranscriptFormat::Text => {
            let palette = Palette::at_stdout(variables);
            let print = |lines: &[Line]| print_toned(lines, palette).map(drop);
            print(&head(&run, now))?;
            for_each_entry(&run, client, |entry| print(&text::lines(&entry, extent))).await?;
            print(&tail(&run, now))
        }
        TranscriptFormat::Markdown => {
            print(&markdown_head(&run, now))?;
            for_each_entry(&run, client, |entry| print(&(markdown::format(&entry, extent)))).await?;
            let tail: Vec<_> = tail(&run, now).into_iter().map(|(_, line)| line).collect();
            print(&format!("\n{}", tail.iter().map(|line| markdown_fact(line)).collect::<String>()))
        }
    }
}

/// Passes the entries of a run to `each`, in order.
async fn for_each_entry(
    run: &RunDetailView,
    client: &StoreClient,
    mut each: impl FnMut(Entry) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut fold = TranscriptFold::new(run.run.id);
    let take = |seq, record: DecodedRecord| match record {
        Ok(record) => fold.take(&record).into_iter().try_for_each(&mut each),
        Err(reason) => each(fold.unreadable(seq, &reason)),
    };
    client.run_records(run.run.id, take).await?;
    fold.finish().into_iter().try_for_each(each)
}

/// The facts before the transcript.
fn head(run: &RunDetailView, now: Timestamp) -> Vec<Line> {
    let row = &run.run;
    let mut facts = vec![
        ("run", format!("{} of session {}", row.id, row.session)),
        ("agent", row.agent.to_string()),
        ("accepted", format!("{}, {} ago", rfc3339(row.accepted_at), age(now.ms_since(row.accepted_at)))),
    ];
    facts.extend(run.title.iter().map(|title| ("title", title.clone())));
    if let Some(spec) = &run.spec {
        let chain: Vec<_> = spec.chain.iter().map(ToString::to_string).collect();
        facts.push(("model", chain.join(", ")));
        facts.push(("folder", spec.workspace.clone()));
    }
    facts.extend(run.unreadable.iter().map(|reason| ("damaged", reason.clone())));
    let line = |(label, text): (&str, String)| (Some(Tone::Quiet), labelled(label, &text));
    facts.into_iter().map(line).chain([(None, String::new())]).collect()
}

/// The facts behind the transcript: what it waits for, what it used, and how it goes on.
fn tail(run: &RunDetailView, now: Timestamp) -> Vec<Line> {
    let row = &run.run;
    let mut lines: Vec<Line> = Vec::new();
    if row.ended.is_none() {
        lines.push((None, String::new()));
        lines.push((Some(Tone::Action), labelled("state", &runs::state(row))));
        let waits = run.waits.iter().map(|wait| waits::format_wait(wait, row.id, now));
        let waits = waits.flat_map(|wait| wait.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.extend(waits.map(|line| (Some(Tone::Action), line.replacen("waiting     ", "waiting   ", 1))));
    }
    let cost = run.cost.map_or_else(|| "not known".to_owned(), dollars);
    let spent = run
        .spent_usd
        .filter(|spent| Some(*spent) != run.cost)
        .map(|spent| format!(", {} booked with its subagents and failed attempts", dollars(spent)));
    lines.push((None, labelled("cost", &format!("{cost}{}", spent.unwrap_or_default()))));
    let took = runs::duration(row);
    let (iterations, tokens) = (row.iterations, row.usage.total());
    lines.push((None, labelled("took", &format!("{took}, iterations {iterations}, tokens {tokens}"))));
    let used = BudgetUsage { tokens, nano_usd: run.spent_usd.unwrap_or(0) };
    let next = row.ended.as_ref().and_then(|ended| continuation(row.id, ended, used));
    lines.extend(next.map(|next| (Some(Tone::Action), next.to_string())));
    lines
}

fn markdown_head(run: &RunDetailView, now: Timestamp) -> String {
    let facts: String = head(run, now).iter().map(|(_, line)| markdown_fact(line)).collect();
    format!("# Run {}\n\n{facts}", run.run.id)
}

/// A labelled line as an item of a list.
fn markdown_fact(line: &str) -> String {
    match line.split_once(' ') {
        Some((label, text)) => format!("- {label}: {}\n", escape_markdown(text.trim_start())),
        None => String::new(),
    }
}

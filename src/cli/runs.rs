//! `hermod runs`: the runs of the store.

use clap::{Args, Subcommand};
use hermod_actors::{
    model::{Body, RunRow, RunState},
    port::Read,
};
use serde_json::{Map, Value};

use super::{
    ListArgs,
    exit::Failure,
    output::print,
    progress::seconds,
    reader::{Named, Reader},
    report, table,
};
use crate::clock::rfc3339;

/// The runs in the store
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the youngest runs
    List(ListArgs),
    /// Show one run
    Show {
        /// A run's id, or `last`
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Shows what is asked for.
pub(crate) async fn execute(args: RunsArgs, reader: &Reader) -> Result<(), Failure> {
    match args.verb {
        Verb::List(list) => self::list(reader, &list).await,
        Verb::Show { id, json: true } => show(reader, &id, Form::Json).await,
        Verb::Show { id, json: false } => show(reader, &id, Form::Text).await,
    }
}

enum Form {
    Json,
    Text,
}

async fn list(reader: &Reader, args: &ListArgs) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for row in reader.runs(Read::Runs { session: None, max: args.max }).await? {
        rows.push(reader.counted(row).await?);
    }
    if args.json {
        return print(&Value::from(rows.iter().map(report::run).collect::<Vec<_>>()).to_string());
    }
    print(&table_of(&rows))
}

/// Runs in columns.
pub(crate) fn table_of(rows: &[RunRow]) -> String {
    let cells = |row: &RunRow| {
        [
            row.id.to_string(),
            state(row),
            row.session.to_string(),
            rfc3339(row.accepted_at),
            took(row),
            row.iterations.to_string(),
            row.usage.total().to_string(),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table::render(["RUN", "STATE", "SESSION", "ACCEPTED", "TOOK", "ITERATIONS", "TOKENS"], &rows)
}

/// The outcome; of an unfinished run, its state.
fn state(row: &RunRow) -> String {
    match (&row.ended, row.state) {
        (Some(ended), _) => ended.outcome.name().to_owned(),
        (None, RunState::Queued) => "queued".into(),
        (None, RunState::Running) => "running".into(),
        (None, RunState::Parked) => "parked".into(),
        (None, RunState::Ended) => "ended".into(),
    }
}

fn took(row: &RunRow) -> String {
    let span = row.started_at.zip(row.ended_at);
    span.map_or_else(|| "-".into(), |(start, end)| seconds(end.ms_since(start)))
}

async fn show(reader: &Reader, id: &str, form: Form) -> Result<(), Failure> {
    let Named::Run(row) = reader.find(id).await? else {
        let text = format!("`{id}` is a session; see `hermod sessions show {id}`");
        return Err(Failure::usage(text));
    };
    let row = reader.counted(*row).await?;
    let accepted = reader.accepted(&row).await?;
    let said = said(reader, &row).await?;
    match form {
        Form::Json => {
            let mut object = match report::run(&row) {
                Value::Object(object) => object,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Map::new()
                }
            };
            object.insert("input".into(), (&*accepted.input).into());
            object.insert("said".into(), said.into());
            object.insert("spec".into(), serde_json::json!(accepted.spec));
            print(&Value::Object(object).to_string())
        }
        Form::Text => {
            let chain: Vec<_> = accepted.spec.chain.iter().map(ToString::to_string).collect();
            let cause = row.ended.as_ref().map_or_else(|| state(&row), ToString::to_string);
            print(&format!(
                "run         {}\nsession     {}\nstate       {cause}\naccepted    {}\ntook        {}\n\
                 iterations  {}\ntokens      {} read, {} written\nmodel       {}\nworkspace   {}\n\ninput:\n{}\n\n\
                 said last:\n{}\n",
                row.id,
                row.session,
                rfc3339(row.accepted_at),
                took(&row),
                row.iterations,
                row.usage.input_tokens,
                row.usage.output_tokens,
                chain.join(", "),
                accepted.spec.workspace,
                accepted.input,
                said.as_deref().unwrap_or("-"),
            ))
        }
    }
}

/// What the model said last in this run.
async fn said(reader: &Reader, row: &RunRow) -> Result<Option<String>, Failure> {
    let (run, mut said) = (row.id, None);
    reader
        .records(row.session, row.first, |(_, record)| {
            if let Body::ModelAnswered(answered) = record.body
                && answered.call.run == run
                && !answered.is_discarded()
                && !answered.message.text.is_empty()
            {
                said = Some(answered.message.text.clone());
            }
            Ok::<(), Failure>(())
        })
        .await?;
    Ok(said)
}

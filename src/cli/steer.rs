//! `hermod steer`: a word to a run that is under way.

use clap::Args;
use serde_json::json;

use super::{
    exit::{Exit, Failure},
    identifier::Identifier,
    inquiry::{Inquiry, Reached, other_answer},
    output::{print, print_json},
};
use crate::control::{Answer, Lost, Request};

/// Tell a run that is under way something; the model reads it before its next step
#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    /// A run's id, or `last`, the last run that is no subagent's
    run: Identifier,
    /// What to tell
    text: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Sends it to the process that runs the run; returns when it is on disk.
pub(crate) async fn execute(args: SteerArgs, inquiry: &Inquiry) -> Result<(), Failure> {
    let request = Request::Steer { run: args.run.into(), text: args.text };
    let answer = match inquiry.reach().await? {
        Reached::Holder(mut client) => client.ask(&request, |_| Ok(())).await.map_err(lost)?,
        // Nobody runs anything: this says how the run goes on.
        Reached::Store(journal) => {
            drop(journal);
            inquiry.ask(&request).await?
        }
    };
    let Answer::Steered { run, session, next } = answer else { return Err(other_answer().into()) };
    if args.json {
        let (run, session, next) = (run.to_string(), session.to_string(), next.to_string());
        return print_json(&json!({ "run": run, "session": session, "next": next }));
    }
    print(&format!(
        "run {run} reads it before its next step; if it completes before that, the message becomes run {next}"
    ))
}

/// It is not said again: nobody knows whether it was heard.
fn lost(lost: Lost) -> Failure {
    match lost {
        Lost::Fault(fault) => fault.into(),
        Lost::Gone => Failure {
            exit: Exit::Failed,
            text: "the process that held the store ended before it answered; `hermod journal last` has a record \
                   message.steered if the message was taken"
                .into(),
        },
    }
}

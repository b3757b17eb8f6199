//! `hermod approvals`: what runs wait for a person to decide.

use std::{path::Path, sync::Arc};

use clap::{Args, Subcommand};
use hermod_actors::{
    model::{Awaited, Timestamp, Verdict},
    port::{Clock, Journal},
};
use serde_json::{Value, json};

use super::{
    exit::{Exit, Failure},
    identifier::Identifier,
    inquiry::{Inquiry, Reached, other_answer},
    output::{print, print_json, say},
    report,
};
use crate::{
    clock::{SystemClock, rfc3339},
    control::{Answer, Approval, Lost, Reader, Request, RunStatus},
    daemon,
};

/// What runs ask you, and your answers
#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the questions of parked runs
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Let a call be made (again)
    Allow(AnswerArgs),
    /// Let a call not be made; its model is told so
    Deny(AnswerArgs),
}

#[derive(Debug, Args)]
struct AnswerArgs {
    /// The call, as `approvals list` names it; a run's id, or `last`, if that run and its subagents have one question only
    call: Identifier,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Lists, or answers.
pub(crate) async fn execute(args: ApprovalsArgs, inquiry: &Inquiry) -> Result<(), Failure> {
    match args.verb {
        Verb::List { json } => list(json, inquiry).await,
        Verb::Allow(args) => decide(args, Verdict::Allow, inquiry).await,
        Verb::Deny(args) => decide(args, Verdict::Deny, inquiry).await,
    }
}

async fn list(json: bool, inquiry: &Inquiry) -> Result<(), Failure> {
    let Answer::Approvals(open) = inquiry.ask(&Request::ApprovalsList {}).await? else {
        return Err(other_answer().into());
    };
    if json {
        return print_json(&Value::from(open.iter().map(object).collect::<Vec<_>>()));
    }
    if open.is_empty() {
        say("no run waits for a person");
    }
    let now = SystemClock::default().at();
    open.iter().try_for_each(|approval| print(&shown(approval, now)))
}

fn object(approval: &Approval) -> Value {
    json!({
        "call": approval.call.to_string(),
        "run": approval.call.run.to_string(),
        "session": approval.session.to_string(),
        "question": approval.question,
        "since": rfc3339(approval.since),
        "expires_at": rfc3339(approval.expires_at),
    })
}

fn shown(approval: &Approval, now: Timestamp) -> String {
    let Approval { call, question, since, expires_at, .. } = approval;
    let (since, until) = (rfc3339(*since), rfc3339(*expires_at));
    let then = if *expires_at > now {
        format!("taken for a no at {until}")
    } else {
        format!("expired {until}: taken for a no when `hermod runs resume {}` takes it up", call.run)
    };
    format!("{call}\n  {question}\n  asked {since}; {then}")
}

async fn decide(args: AnswerArgs, verdict: Verdict, inquiry: &Inquiry) -> Result<(), Failure> {
    let request = Request::ApprovalsDecide { call: args.call.to_string(), verdict };
    let answer = match inquiry.reach().await? {
        Reached::Holder(mut client) => client.ask(&request, |_| Ok(())).await.map_err(lost)?,
        Reached::Store(journal) => alone(&args.call, verdict, (journal, inquiry.state())).await?,
    };
    let Answer::Decided { call, run } = answer else { return Err(other_answer().into()) };
    if args.json {
        return print_json(
            &json!({ "call": call.to_string(), "verdict": verdict, "run": report::run(&run) }),
        );
    }
    print(&format!("call {call} is {verdict}"))?;
    // The decision stands, whether or not there is more to be said of it.
    if rests(&run, inquiry).await.unwrap_or(false) {
        say(format!("no process runs run {0}: it goes on with `hermod runs resume {0}`", run.id));
    }
    Ok(())
}

/// Whether nobody runs the run: who holds the store may do so for another one.
async fn rests(run: &RunStatus, inquiry: &Inquiry) -> Result<bool, Failure> {
    let request = Request::RunsShow { run: run.id.to_string() };
    let Answer::Run(detail) = inquiry.ask(&request).await? else { return Err(other_answer().into()) };
    Ok(detail.waits.iter().any(|wait| wait.what == Awaited::Process))
}

/// Nobody runs the run: the answer is written from here, and nothing is started.
async fn alone(
    call: &str,
    verdict: Verdict,
    (journal, state): (Arc<dyn Journal>, &Path),
) -> Result<Answer, Failure> {
    let reader = Reader::new(Arc::clone(&journal));
    let (_, call) = reader.asked(call).await?;
    let runtime = daemon::at_rest((journal, state)).await?;
    let decided = runtime.runtime.decide_at_rest(call, verdict).await;
    runtime.suspend(daemon::Leave::Done).await;
    Ok(Answer::Decided { call, run: Box::new(RunStatus::at_rest(decided?)) })
}

/// Whether it was heard nobody knows.
fn lost(lost: Lost) -> Failure {
    match lost {
        Lost::Fault(fault) => fault.into(),
        Lost::Gone => Failure {
            exit: Exit::Failed,
            text: "the process that held the store ended before it answered; `hermod approvals list` shows whether the \
                   question is still open"
                .into(),
        },
    }
}

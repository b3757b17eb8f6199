//! `hermod approvals`: lists the pending approvals, or answers one.

use clap::{Args, Subcommand};
use hermod_actors::model::{ApprovalDecision, ApprovalScope, Timestamp};

use super::{CliError, format::age, print, print_json, print_note, tree};
use crate::{
    clock::{self, rfc3339},
    control::{ControlRequest, ControlResponse},
    host::{Identifier, StoreClient, unexpected_response},
    view::{ApprovalView, DecisionView},
};

/// What runs ask you, and your answers
#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// List the questions of parked runs
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Let a call be made (again)
    Allow(AllowArgs),
    /// Let a call not be made; its model is told so
    Deny(AnswerArgs),
    /// Answer a question of a model
    Answer(TextArgs),
}

#[derive(Debug, Args)]
struct TextArgs {
    #[command(flatten)]
    answer: AnswerArgs,
    /// The answer
    text: String,
}

#[derive(Debug, Args)]
struct AnswerArgs {
    /// The call, as `approvals list` names it; a run's id, or `last`, if that run and its subagents have one question only
    call: Identifier,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct AllowArgs {
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    scope: ScopeArgs,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct ScopeArgs {
    /// This call only (the default)
    #[arg(long)]
    once: bool,
    /// Such calls for the rest of the run
    #[arg(long)]
    run: bool,
    /// Such calls in every run: makes rules that `hermod policy list` shows
    #[arg(long)]
    always: bool,
}

impl ScopeArgs {
    const fn scope(&self) -> ApprovalScope {
        match (self.run, self.always) {
            (_, true) => ApprovalScope::Always,
            (true, _) => ApprovalScope::Run,
            _ => ApprovalScope::Once,
        }
    }
}

/// Lists the open approvals, or answers one.
pub(crate) async fn execute(args: ApprovalsArgs, client: &StoreClient) -> Result<(), CliError> {
    match args.command {
        ApprovalsCommand::List { json } => list(json, client).await,
        ApprovalsCommand::Allow(args) => {
            let scope = args.scope.scope();
            decide(args.answer, (ApprovalDecision::Allow, scope), client).await
        }
        ApprovalsCommand::Deny(args) => {
            decide(args, (ApprovalDecision::Deny, ApprovalScope::Once), client).await
        }
        ApprovalsCommand::Answer(args) => answer(args, client).await,
    }
}

async fn list(json: bool, client: &StoreClient) -> Result<(), CliError> {
    let ControlResponse::Approvals(open) = client.request(&ControlRequest::ApprovalsList {}).await? else {
        return Err(unexpected_response().into());
    };
    if json {
        return print_json(&open);
    }
    if open.is_empty() {
        print_note("no run waits for a person");
    }
    let now = clock::now();
    open.iter().try_for_each(|approval| print(&format_approval(approval, now)))
}

fn format_approval(approval: &ApprovalView, now: Timestamp) -> String {
    let ApprovalView { call, allow_rules, .. } = approval;
    let [question, asked] = format_question(approval, now);
    let rules = match allow_rules.as_slice() {
        [] if approval.wants_text => format!("\n  answer with `hermod approvals answer {call} TEXT`"),
        [] => String::new(),
        rules => format!("\n  `--run` and `--always` allow {}", rules.join(", ")),
    };
    format!("{call}\n  {question}{rules}\n  {asked}")
}

/// The question, and since when and until when it is open.
fn format_question(approval: &ApprovalView, now: Timestamp) -> [String; 2] {
    let ApprovalView { call, question, since, expires_at, .. } = approval;
    let (since, until) = (rfc3339(*since), rfc3339(*expires_at));
    let expiry = if *expires_at > now {
        format!("taken for a no at {until}")
    } else {
        format!("expired {until}: taken for a no when `hermod runs resume {}` takes it up", call.run)
    };
    [question.replace('\n', "\n  "), format!("asked {since}; {expiry}")]
}

/// A question as the chat lists it, with the task of its run and the commands that answer it.
pub(crate) fn format_in_chat(approval: &ApprovalView, task: &str, now: Timestamp) -> String {
    let question = approval.question.replace('\n', "\n  ");
    let asked = format!("asked {} ago; {}", age(now.ms_since(approval.since)), expiry_in_chat(approval, now));
    let call = approval.call;
    let id = format!("{}.{}.{}", tree::id_suffix(call.run), call.iteration, call.n);
    let answers = if approval.wants_text {
        format!("/approve {id} ANSWER")
    } else if approval.allow_rules.is_empty() {
        format!("/approve {id}  ·  /deny {id}")
    } else {
        let rules = approval.allow_rules.join(", ");
        format!("/approve {id}  ·  /deny {id}\n  /approve {id} run, or always, allows {rules}")
    };
    format!("{id}  {task}\n  {question}\n  {asked}\n  {answers}")
}

fn expiry_in_chat(approval: &ApprovalView, now: Timestamp) -> String {
    match approval.expires_at.ms_since(now) {
        0 => format!(
            "its time is over: it is denied when /resume {} takes it up",
            tree::id_suffix(approval.call.run)
        ),
        left => format!("denied without an answer in {}", age(left)),
    }
}

async fn decide(
    args: AnswerArgs,
    (verdict, scope): (ApprovalDecision, ApprovalScope),
    client: &StoreClient,
) -> Result<(), CliError> {
    let decision = client.decide(&args.call, verdict, scope).await?;
    if args.json {
        return print_json(&decision);
    }
    print_done(&decision, false, client).await
}

async fn answer(args: TextArgs, client: &StoreClient) -> Result<(), CliError> {
    let decision = client.answer(&args.answer.call, args.text).await?;
    if args.answer.json {
        return print_json(&decision);
    }
    print_done(&decision, true, client).await
}

/// What has become of a call; `is_text` if its question was answered with text.
pub(crate) fn decided_text(decision: &DecisionView, is_text: bool) -> String {
    let DecisionView { call, verdict, scope, .. } = decision;
    let reach = match scope {
        ApprovalScope::Once => "",
        ApprovalScope::Run => ", and such calls of its run too",
        ApprovalScope::Always => ", and such calls of every run too",
    };
    if is_text { format!("call {call} is answered") } else { format!("call {call} is {verdict}{reach}") }
}

/// Prints what has become of the call, and how its run goes on.
async fn print_done(decision: &DecisionView, is_text: bool, client: &StoreClient) -> Result<(), CliError> {
    let run = &decision.run;
    print(&decided_text(decision, is_text))?;
    // The decision is recorded, even if the follow-up query fails.
    if client.run_detail(run.id.to_string()).await.is_ok_and(|detail| detail.is_unowned()) {
        print_note(format!("no process runs run {0}: it goes on with `hermod runs resume {0}`", run.id));
    }
    Ok(())
}

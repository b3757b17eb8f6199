//! What the user wants beside messages: answers to questions, stops, lists, diffs, exports. Each is carried out in a task
//! of its own, so that no slow one holds up the keys; its answer comes as an event.

use std::{path::PathBuf, sync::Arc};

use hermod_actors::model::{ApprovalDecision, ApprovalScope, LimitIncrease, RunId, SessionId, StopReason};
use hermod_chat::{AllowScope, ChatEvent, Choice, Command, Intent, Link, PageKind, Tone, Verdict};
use tokio::sync::mpsc;

use super::{changes, export, files, overview};
use crate::{
    cli::{agents, budgets, conversation_list, shared_owner::SharedOwner, tree},
    clock::{self, rfc3339},
    control::{ControlRequest, ControlResponse, RequestErrorKind},
    discovery::Variables,
    host::{BudgetLimits, HandoverError, HostError, millis, unexpected_response},
};

/// Carries out what the user wants.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) owner: Arc<SharedOwner>,
    pub(super) variables: Variables,
    /// The folder of the tools.
    pub(super) workspace: PathBuf,
    /// The model that the user has chosen for the next message.
    pub(super) model: Option<String>,
    undone: changes::UndoneEdits,
    has_overview: bool,
    told: mpsc::Sender<ChatEvent>,
}

/// What follows from an intent.
#[derive(Debug)]
pub(super) enum Then {
    /// Nothing now.
    Nothing,
    /// Another conversation is shown: the name of its session, and the agent of a new one.
    Show((Option<String>, Option<String>)),
}

impl Requests {
    pub(super) fn new(
        owner: Arc<SharedOwner>,
        told: mpsc::Sender<ChatEvent>,
        variables: Variables,
        workspace: PathBuf,
    ) -> Self {
        Self { owner, variables, workspace, model: None, undone: changes::UndoneEdits::default(), has_overview: false, told }
    }

    /// Learns what comes from the conversation: when the service answers first, the installation is looked at.
    pub(super) fn on_event(&mut self, event: &ChatEvent) {
        if !matches!(event, ChatEvent::Link(Link::Up(_))) || std::mem::replace(&mut self.has_overview, true) {
            return;
        }
        let (owner, told) = (Arc::clone(&self.owner), self.told.clone());
        tokio::spawn(async move {
            let event = match overview::overview(&owner).await {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    let text = format!("what else there is cannot be told: {error}");
                    ChatEvent::Notice(Tone::Bad, text)
                }
            };
            // A closed receiver is a chat that its user has left.
            let _ = told.send(event).await;
        });
    }

    /// Begins to carry out an intent.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the modes carry out all others themselves")]
    pub(super) fn carry_out(
        &mut self,
        intent: Intent,
        session: Option<SessionId>,
        run: Option<RunId>,
    ) -> Then {
        match intent {
            Intent::Open(name) => return Then::Show((Some(name), None)),
            Intent::Interrupt(run) => {
                let (tree, reason) = (false, StopReason::Command);
                self.ask_quietly(ControlRequest::Stop { run: run.to_string(), tree, reason });
            }
            Intent::Decide(call, verdict) => self.ask_quietly(decision(call.to_string(), verdict)),
            Intent::DecideNamed(call, verdict) => {
                let owner = Arc::clone(&self.owner);
                self.spawn(async move { overview::decide(&owner, call, verdict).await });
            }
            Intent::CompletePath { start, path } => {
                let workspace = self.workspace.clone();
                self.spawn(async move {
                    let candidates = files::complete(workspace, path).await;
                    Ok(ChatEvent::Completions { start, candidates })
                });
            }
            Intent::PastePicture => {
                let (owner, variables) = (Arc::clone(&self.owner), self.variables.clone());
                self.spawn(async move { files::clipboard_picture(owner.state(), &variables).await });
            }
            Intent::Command(command) => return self.command(command, session, run),
            _ => {}
        }
        Then::Nothing
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the face carries out all others itself")]
    fn command(&mut self, command: Command, session: Option<SessionId>, run: Option<RunId>) -> Then {
        let owner = Arc::clone(&self.owner);
        match command {
            Command::New => return Then::Show((None, None)),
            Command::Agent(Some(agent)) => return Then::Show((None, Some(agent))),
            Command::Resume(_) => self.spawn(async move { conversations(&owner).await }),
            Command::Model(Some(model)) => {
                let text = format!("the next message that is a task of its own goes to {model}");
                self.model = Some(model);
                self.spawn(async move { Ok(ChatEvent::Notice(Tone::Quiet, text)) });
            }
            Command::Model(None) => self.spawn(async move { models(&owner).await }),
            Command::Agent(None) => {
                let variables = self.variables.clone();
                self.spawn(async move { agent_list(&variables) });
            }
            Command::Runs => self.spawn(async move { overview::run_list(&owner).await }),
            Command::Approvals => self.spawn(async move { overview::waiting(&owner).await }),
            Command::Report => {
                let variables = self.variables.clone();
                self.spawn(async move { overview::report(&variables).await });
            }
            Command::Usage => {
                let variables = self.variables.clone();
                self.spawn(async move { overview::usage(&owner, &variables).await });
            }
            Command::Tree => self.spawn(async move { run_tree(&owner, run).await }),
            Command::Budget(more) => self.spawn(async move { budget(&owner, (session, run), more).await }),
            Command::Diff => {
                let workspace = self.workspace.clone();
                self.spawn(async move { changes::diff(&workspace).await });
            }
            Command::Undo => {
                let undone = changes::UndoneEdits::clone(&self.undone);
                self.spawn(async move { changes::undo(&owner, session, undone).await });
            }
            Command::Export(file) => {
                let workspace = self.workspace.clone();
                self.spawn(async move { export::export(&owner, session, (&workspace, file)).await });
            }
            Command::Image(Some(file)) => {
                let workspace = self.workspace.clone();
                self.spawn(async move { files::attach(&workspace, &file).await });
            }
            _ => {}
        }
        Then::Nothing
    }

    fn spawn(&self, work: impl Future<Output = Result<ChatEvent, String>> + Send + 'static) {
        let told = self.told.clone();
        tokio::spawn(async move {
            let event = work.await.unwrap_or_else(|error| ChatEvent::Notice(Tone::Bad, error));
            // A closed receiver is a chat that its user has left.
            let _ = told.send(event).await;
        });
    }

    /// Asks the service for something whose effect is seen in the conversation; only a failure is told.
    fn ask_quietly(&self, request: ControlRequest) {
        let (owner, told) = (Arc::clone(&self.owner), self.told.clone());
        tokio::spawn(async move {
            // A stop or a decision that is repeated changes nothing more.
            if let Err(error) = owner.ask(&request).await {
                // A closed receiver is a chat that its user has left.
                let _ = told.send(ChatEvent::Notice(Tone::Bad, error.to_string())).await;
            }
        });
    }
}

/// The request that gives a person's answer.
pub(super) fn decision(call: String, verdict: Verdict) -> ControlRequest {
    let (verdict, scope) = match verdict {
        Verdict::Text(text) => return ControlRequest::ApprovalsAnswer { call, text },
        Verdict::Deny => (ApprovalDecision::Deny, ApprovalScope::Once),
        Verdict::Allow(AllowScope::Once) => (ApprovalDecision::Allow, ApprovalScope::Once),
        Verdict::Allow(AllowScope::Run) => (ApprovalDecision::Allow, ApprovalScope::Run),
        Verdict::Allow(AllowScope::Always) => (ApprovalDecision::Allow, ApprovalScope::Always),
    };
    ControlRequest::ApprovalsDecide { call, verdict, scope }
}

/// The error of an answer of another kind.
pub(super) fn unexpected() -> String {
    HostError::from(unexpected_response()).to_string()
}

/// The answer of the service, or why there is none.
pub(super) async fn answer(owner: &SharedOwner, request: &ControlRequest) -> Result<ControlResponse, String> {
    owner.ask_once(request).await.map_err(|error| error.to_string())
}

/// Conversations to choose from, the one with the latest run first.
async fn conversations(owner: &SharedOwner) -> Result<ChatEvent, String> {
    let listed = conversation_list::read(owner).await.map_err(|error| error.to_string())?;
    let choice = |listed: conversation_list::ListedConversation| {
        let (id, at) = (listed.session.id.to_string(), rfc3339(listed.last_run_at));
        let at = at.get(..16).unwrap_or(&at).replace('T', " ");
        Choice { label: format!("{at}  {}", listed.title), id }
    };
    Ok(ChatEvent::Choices(listed.into_iter().map(choice).collect()))
}

fn page(title: &str, text: String) -> ChatEvent {
    ChatEvent::Page { title: title.to_owned(), text, kind: PageKind::Plain }
}

async fn models(owner: &SharedOwner) -> Result<ChatEvent, String> {
    let ControlResponse::Models(models) = answer(owner, &ControlRequest::ModelsList {}).await? else {
        return Err(unexpected());
    };
    let names: Vec<String> = models.iter().map(|row| row.model.to_string()).collect();
    let known = if names.is_empty() { "no run has used one yet".to_owned() } else { names.join("\n") };
    Ok(page("Models that runs have used; /model PROVIDER/NAME takes any", known))
}

fn agent_list(variables: &Variables) -> Result<ChatEvent, String> {
    agents::table_of(variables)
        .map(|table| page("Agents; /agent NAME begins with one", table))
        .map_err(|error| error.text)
}

async fn run_tree(owner: &SharedOwner, run: Option<RunId>) -> Result<ChatEvent, String> {
    let run = run.map_or_else(|| "last".to_owned(), |run| run.to_string());
    let ControlResponse::Tree(nodes) = answer(owner, &ControlRequest::Tree { run: Some(run) }).await? else {
        return Err(unexpected());
    };
    Ok(page("The run and its subagents", tree::lines(&nodes, clock::now()).join("\n")))
}

/// Shows the budget of the run under way, else of the session's last one; raises it first by what is given.
async fn budget(
    owner: &SharedOwner,
    (session, run): (Option<SessionId>, Option<RunId>),
    more: Option<String>,
) -> Result<ChatEvent, String> {
    let Some(session) = session else { return Err("this conversation has no run yet".to_owned()) };
    let run = if let Some(run) = run {
        run
    } else {
        let request = ControlRequest::SessionsShow { session: session.to_string(), max: 1 };
        let ControlResponse::Session(detail) = answer(owner, &request).await? else {
            return Err(unexpected());
        };
        detail.runs.last().map(|run| run.id).ok_or("this conversation has no run yet")?
    };
    if let Some(more) = more {
        let amounts = more.split_whitespace().collect::<Vec<_>>().join(",");
        let added: BudgetLimits = amounts.parse()?;
        let by = LimitIncrease { budget: added.amounts, wall_ms: added.wall.map(millis) };
        answer(owner, &ControlRequest::BudgetAdd { run: run.to_string(), by }).await?;
        // A run that had used up its budget goes on.
        let follow = ControlRequest::RunsResume { id: run.to_string() };
        match owner.ask_once(&follow).await {
            Ok(_) => {}
            // It is refused if the run needs no process, as one that is under way.
            Err(HandoverError::Failed(HostError::Request(error)))
                if error.kind == RequestErrorKind::Usage => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let ControlResponse::Budget(budget) =
        answer(owner, &ControlRequest::BudgetShow { run: run.to_string() }).await?
    else {
        return Err(unexpected());
    };
    Ok(page("Budget", budgets::format_budget(&budget)))
}

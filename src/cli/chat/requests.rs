//! What the user wants beside messages: answers to questions, stops, lists, diffs, exports. Each is carried out in a task
//! of its own, so that no slow one holds up the keys; its answer comes as an event.

use std::{path::PathBuf, sync::Arc, time::Duration};

use hermod_actors::model::{
    ApprovalDecision, ApprovalScope, LimitIncrease, ModelRef, RunId, SessionId, StopReason,
};
use hermod_chat::{AllowScope, ChatEvent, Choice, Command, Intent, Link, PageKind, Tone, Verdict};
use tokio::{sync::mpsc, time::timeout};

use super::{changes, export, files, overview};
use crate::{
    cli::{
        agents, budgets,
        format::{age, words_line},
        shared_owner::SharedOwner,
        tree,
    },
    clock,
    control::{ControlRequest, ControlResponse, RequestErrorKind},
    discovery::Variables,
    host::{BudgetLimits, HandoverError, HostError, millis, unexpected_response},
    view::{AgentView, ConversationView},
};

/// Limit of finding a conversation.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// Characters of a title.
const MAX_TITLE_CHARS: usize = 80;

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
    /// Requests of the user that are under way.
    open: usize,
    /// A conversation is being found; what is typed is for that one.
    is_opening: bool,
    told: mpsc::Sender<RequestUpdate>,
}

/// What a request tells at its end: each tells once.
#[derive(Debug)]
pub(super) enum RequestUpdate {
    /// An event for the screen, if there is something to say.
    Event(Option<ChatEvent>),
    /// The same, for which the user has not asked.
    Unasked(Option<ChatEvent>),
    /// The conversation to show, or why it is not.
    Found(Result<NextConversation, String>),
}

/// Another conversation: its session, and the agent of a new one.
pub(super) type NextConversation = (Option<String>, Option<String>);

/// What follows from an intent.
#[derive(Debug)]
pub(super) enum Then {
    /// Nothing now.
    Nothing,
    /// Another conversation is shown.
    Show(NextConversation),
}

impl Requests {
    pub(super) fn new(
        owner: Arc<SharedOwner>,
        told: mpsc::Sender<RequestUpdate>,
        variables: Variables,
        workspace: PathBuf,
    ) -> Self {
        let undone = changes::UndoneEdits::default();
        let (model, has_overview, open, is_opening) = (None, false, 0, false);
        Self { owner, variables, workspace, model, undone, has_overview, open, is_opening, told }
    }

    /// True if the user waits for an answer.
    pub(super) const fn is_busy(&self) -> bool {
        self.open > 0
    }

    /// True while a conversation is being found.
    pub(super) const fn is_opening(&self) -> bool {
        self.is_opening
    }

    /// Takes the end of a request: an event for the screen, or the conversation to show.
    pub(super) fn on_update(&mut self, update: RequestUpdate) -> (Option<ChatEvent>, Then) {
        match update {
            RequestUpdate::Unasked(event) => (event, Then::Nothing),
            RequestUpdate::Event(event) => {
                self.open = self.open.saturating_sub(1);
                (event, Then::Nothing)
            }
            RequestUpdate::Found(found) => {
                self.open = self.open.saturating_sub(1);
                self.is_opening = false;
                match found {
                    Ok(next) => (None, Then::Show(next)),
                    Err(error) => {
                        (Some(ChatEvent::Notice(Tone::Bad, format!("not opened: {error}"))), Then::Nothing)
                    }
                }
            }
        }
    }

    /// Learns what comes from the conversation: when the service answers first, the installation is looked at.
    pub(super) fn on_event(&mut self, event: &ChatEvent) {
        if !matches!(event, ChatEvent::Link(Link::Up(_))) || std::mem::replace(&mut self.has_overview, true) {
            return;
        }
        let owner = Arc::clone(&self.owner);
        self.tell(async move {
            let event = overview::overview(&owner).await.unwrap_or_else(|error| {
                let text = format!("what else the installation does cannot be told: {error}");
                Some(ChatEvent::Notice(Tone::Bad, text))
            });
            RequestUpdate::Unasked(event)
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
            Intent::Open(name) => self.open(name),
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
            Command::Agent(Some(agent)) => self.begin_with(agent),
            Command::Resume(_) => self.spawn(async move { conversations(&owner, session).await }),
            Command::Model(Some(model)) => {
                let chosen = match model.parse::<ModelRef>() {
                    Ok(_) => {
                        let text = format!("the next message that is a task of its own goes to {model}");
                        self.model = Some(model);
                        Ok(files::notice(text))
                    }
                    Err(error) => Err(error),
                };
                self.spawn(async move { chosen });
            }
            Command::Model(None) => self.spawn(async move { models(&owner).await }),
            Command::Agent(None) => self.spawn(async move { agent_list(&owner).await }),
            Command::Runs => self.spawn(async move { overview::run_list(&owner).await }),
            Command::Approvals => self.spawn(async move { overview::waiting(&owner).await }),
            Command::Report => {
                let variables = self.variables.clone();
                self.spawn(async move { overview::report(&variables).await });
            }
            Command::Usage => {
                let variables = self.variables.clone();
                self.spawn(async move { overview::usage(&variables).await });
            }
            Command::Tree => self.spawn(async move { run_tree(&owner, (session, run)).await }),
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

    /// Finds the conversation with this name. Until then the present one stays.
    fn open(&mut self, name: String) {
        let owner = Arc::clone(&self.owner);
        self.find(async move {
            let session = owner.session_of(&name).await.map_err(|error| error.to_string())?;
            Ok((Some(session.to_string()), None))
        });
    }

    /// Begins a conversation with an agent of the service.
    fn begin_with(&mut self, agent: String) {
        let owner = Arc::clone(&self.owner);
        self.find(async move {
            let known = agents_of(&owner).await?;
            if known.iter().any(|view| view.name.as_str() == agent) {
                return Ok((None, Some(agent)));
            }
            let names: Vec<&str> = known.iter().map(|view| view.name.as_str()).collect();
            Err(format!("there is no agent `{agent}`; there are: {}", names.join(", ")))
        });
    }

    fn find(&mut self, work: impl Future<Output = Result<NextConversation, String>> + Send + 'static) {
        self.is_opening = true;
        self.start(async move {
            let found = timeout(OPEN_TIMEOUT, work).await;
            let late = || Err("the service does not answer; try again".to_owned());
            RequestUpdate::Found(found.unwrap_or_else(|_| late()))
        });
    }

    fn spawn(&mut self, work: impl Future<Output = Result<ChatEvent, String>> + Send + 'static) {
        self.start(async move {
            let event = work.await.unwrap_or_else(|error| ChatEvent::Notice(Tone::Bad, error));
            RequestUpdate::Event(Some(event))
        });
    }

    fn start(&mut self, work: impl Future<Output = RequestUpdate> + Send + 'static) {
        self.open += 1;
        self.tell(work);
    }

    fn tell(&self, work: impl Future<Output = RequestUpdate> + Send + 'static) {
        let told = self.told.clone();
        tokio::spawn(async move {
            let update = work.await;
            // A closed receiver is a chat that its user has left.
            told.send(update).await.ok();
        });
    }

    /// Asks the service for something whose effect is seen in the conversation; only a failure is told.
    fn ask_quietly(&mut self, request: ControlRequest) {
        let owner = Arc::clone(&self.owner);
        self.start(async move {
            // A stop or a decision that is repeated changes nothing more.
            let failure = owner.ask(&request).await.err();
            let failure = failure.map(|error| ChatEvent::Notice(Tone::Bad, error.to_string()));
            RequestUpdate::Event(failure)
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

/// Other conversations to choose from, the one with the latest run first.
async fn conversations(owner: &SharedOwner, present: Option<SessionId>) -> Result<ChatEvent, String> {
    let list = owner.conversations().await.map_err(|error| error.to_string())?;
    let now = clock::now();
    let choice = |conversation: ConversationView| {
        let id = conversation.session.id;
        let (age, title) = (age(now.ms_since(conversation.last_run_at)), conversation.title());
        let title = words_line(title, MAX_TITLE_CHARS);
        let label = format!("{}  {age:>6}  {title}", id_end(id));
        Choice { label, id: id.to_string(), text: conversation.task }
    };
    let others = list.conversations.into_iter().filter(|other| Some(other.session.id) != present);
    Ok(ChatEvent::Choices { choices: others.map(choice).collect(), is_cut: list.is_cut })
}

/// The end of a session's id, which names it as `tree::id_suffix` names a run.
fn id_end(session: SessionId) -> String {
    tree::id_suffix(RunId::from_bits(session.bits()))
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

/// The agents of the service, whose configuration may be another one than that of this process.
async fn agents_of(owner: &SharedOwner) -> Result<Vec<AgentView>, String> {
    let ControlResponse::Agents(agents) = answer(owner, &ControlRequest::AgentsList {}).await? else {
        return Err(unexpected());
    };
    Ok(agents)
}

async fn agent_list(owner: &SharedOwner) -> Result<ChatEvent, String> {
    let title = "Agents; /agent NAME begins with one".to_owned();
    let text = agents::format_list(&agents_of(owner).await?);
    Ok(ChatEvent::Page { title, text, kind: PageKind::Table })
}

async fn run_tree(owner: &SharedOwner, at: (Option<SessionId>, Option<RunId>)) -> Result<ChatEvent, String> {
    let run = present_run(owner, at).await?.to_string();
    let ControlResponse::Tree(nodes) = answer(owner, &ControlRequest::Tree { run: Some(run) }).await? else {
        return Err(unexpected());
    };
    Ok(page("The run and its subagents", tree::lines(&nodes, clock::now()).join("\n")))
}

/// The run under way, else the session's last one.
async fn present_run(
    owner: &SharedOwner,
    (session, run): (Option<SessionId>, Option<RunId>),
) -> Result<RunId, String> {
    const NO_RUN: &str = "this conversation has no run yet";
    if let Some(run) = run {
        return Ok(run);
    }
    let request = ControlRequest::SessionsShow { session: session.ok_or(NO_RUN)?.to_string(), max: 1 };
    let ControlResponse::Session(detail) = answer(owner, &request).await? else {
        return Err(unexpected());
    };
    Ok(detail.runs.last().map(|run| run.id).ok_or(NO_RUN)?)
}

/// Shows the budget of the run under way, else of the session's last one; raises it first by what is given.
async fn budget(
    owner: &SharedOwner,
    at: (Option<SessionId>, Option<RunId>),
    more: Option<String>,
) -> Result<ChatEvent, String> {
    let run = present_run(owner, at).await?;
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

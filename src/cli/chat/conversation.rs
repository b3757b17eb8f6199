//! One conversation of the chat: its messages in their order, and what happens in its session. All its tasks end when it
//! is dropped.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hermod_actors::model::{Hash, QueueMode, RunId, SessionId};
use hermod_chat::{ChatEvent, Link, Tone};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep,
};

use super::{follow, poll};
use crate::{
    cli::{
        background::{self, ServiceWait},
        run::read_images,
    },
    clock,
    control::{MessageSubmission, RequestError, RequestErrorKind, RunSubmission, SubmissionConversation},
    host::{HandoverError, HostError, OwnerConnection},
};

/// Events that wait for the screen. A full queue lets the service wait, which drops deltas and no records.
const MAX_QUEUED_EVENTS: usize = 1_024;
/// Pause between two tries to reach a service.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// With what a conversation begins.
#[derive(Debug, Clone)]
pub(super) struct Beginning {
    /// The name of an existing session; `None` for a new conversation.
    pub(super) session: Option<String>,
    /// The agent of a new conversation.
    pub(super) agent: Option<String>,
    /// The model of the next messages.
    pub(super) model: Option<String>,
    /// The script of a rehearsal, which is played in place of a model.
    pub(super) script: Option<Hash>,
    /// The folder of the tools.
    pub(super) workspace: Option<PathBuf>,
    /// The current folder.
    pub(super) folder: PathBuf,
}

/// A message of the user.
#[derive(Debug)]
pub(super) struct OutgoingMessage {
    pub(super) local: u64,
    pub(super) text: String,
    pub(super) images: Vec<PathBuf>,
    /// A run is under way, which the message steers.
    pub(super) steers: bool,
    /// The model from this message on, if the user has chosen one.
    pub(super) model: Option<String>,
}

/// What the tasks of a conversation tell.
#[derive(Debug)]
pub(super) enum Told {
    /// An event for the screen.
    Event(ChatEvent),
    /// The conversation has this session.
    Opened(SessionId),
}

/// A conversation that is shown.
#[derive(Debug)]
pub(super) struct Conversation {
    state: PathBuf,
    told: mpsc::Receiver<Told>,
    sender: mpsc::Sender<Told>,
    messages: mpsc::UnboundedSender<OutgoingMessage>,
    /// The run under way, which is polled.
    active: watch::Sender<Option<RunId>>,
    tasks: JoinSet<()>,
    pub(super) session: Option<SessionId>,
}

impl Conversation {
    /// Begins: connects to the service, and follows the session if there is one.
    pub(super) fn begin(state: &Path, beginning: Beginning) -> Self {
        let (sender, told) = mpsc::channel(MAX_QUEUED_EVENTS);
        let (messages, outgoing) = mpsc::unbounded_channel();
        let (active, _) = watch::channel(None);
        let mut tasks = JoinSet::new();
        let outbox = Outbox { state: state.to_owned(), beginning, session: None, told: sender.clone() };
        tasks.spawn(outbox.run(outgoing));
        Self { state: state.to_owned(), told, sender, messages, active, tasks, session: None }
    }

    /// What is told next. May be cancelled at any time.
    pub(super) async fn next(&mut self) -> Option<ChatEvent> {
        let told = self.told.recv().await?;
        Some(self.take(told))
    }

    fn take(&mut self, told: Told) -> ChatEvent {
        match told {
            Told::Event(event) => event,
            Told::Opened(session) => {
                self.follow(session);
                ChatEvent::Conversation(Some(session))
            }
        }
    }

    /// An event that waits already.
    pub(super) fn try_next(&mut self) -> Option<ChatEvent> {
        let told = self.told.try_recv().ok()?;
        Some(self.take(told))
    }

    fn follow(&mut self, session: SessionId) {
        self.session = Some(session);
        self.tasks.spawn(follow::follow(self.state.clone(), session, self.sender.clone()));
        self.tasks.spawn(poll::poll(
            self.state.clone(),
            session,
            self.active.subscribe(),
            self.sender.clone(),
        ));
    }

    /// Sends a message after those before it.
    pub(super) fn send(&self, message: OutgoingMessage) {
        // The receiver lives as long as the tasks.
        let _ = self.messages.send(message);
    }

    /// Polls this run from now on.
    pub(super) fn set_active(&self, run: Option<RunId>) {
        self.active.send_if_modified(|active| std::mem::replace(active, run) != run);
    }
}

/// Connects to the service that holds the store, or to one in the background that is started.
pub(super) async fn connect(state: &Path) -> Result<OwnerConnection, HostError> {
    connect_telling(state, |_| ()).await
}

async fn connect_telling(
    state: &Path,
    on_wait: impl FnMut(ServiceWait),
) -> Result<OwnerConnection, HostError> {
    let connected = background::connect(state, &[], on_wait).await;
    connected.map_err(|error| RequestError::new(RequestErrorKind::Internal, error.text).into())
}

/// Sends messages one after the other.
struct Outbox {
    state: PathBuf,
    beginning: Beginning,
    session: Option<SessionId>,
    told: mpsc::Sender<Told>,
}

impl Outbox {
    async fn run(mut self, mut outgoing: mpsc::UnboundedReceiver<OutgoingMessage>) {
        if let Err(error) = self.open().await {
            self.tell(ChatEvent::Notice(Tone::Bad, error.to_string())).await;
        }
        while let Some(message) = outgoing.recv().await {
            let local = message.local;
            let event = match self.send(message).await {
                Ok((session, message)) => {
                    if self.session.replace(session) != Some(session) {
                        // A closed receiver is a conversation that is not shown any more.
                        let _ = self.told.send(Told::Opened(session)).await;
                    }
                    ChatEvent::Sent { local, message }
                }
                Err(error) => ChatEvent::NotSent { local, reason: error.to_string() },
            };
            self.tell(event).await;
        }
    }

    async fn tell(&self, event: ChatEvent) {
        let _ = self.told.send(Told::Event(event)).await;
    }

    /// Connects, and finds the session that is named.
    async fn open(&mut self) -> Result<(), HostError> {
        loop {
            let told = self.told.clone();
            let mut owner = connect_telling(&self.state, |wait| {
                if let ServiceWait::Command { .. } = wait {
                    // A full queue has other things to show.
                    let _ = told.try_send(Told::Event(ChatEvent::Notice(Tone::Action, wait.to_string())));
                }
            })
            .await?;
            self.tell(ChatEvent::Link(Link::Up(owner.pid))).await;
            let Some(name) = &self.beginning.session else { return Ok(()) };
            match owner.session_of(name).await {
                Ok(session) => {
                    self.session = Some(session);
                    let _ = self.told.send(Told::Opened(session)).await;
                    return Ok(());
                }
                Err(HandoverError::Failed(error)) => return Err(error),
                Err(HandoverError::Gone | HandoverError::Crowded(_)) => sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Sends a message, to the next service if one ends meanwhile: its key makes a repeat harmless.
    async fn send(&mut self, message: OutgoingMessage) -> Result<(SessionId, RunId), HostError> {
        let images = read_images(&message.images, "picture").map_err(|error| HostError::usage(error.text))?;
        let images: Vec<String> = images.iter().map(|image| STANDARD.encode(image)).collect();
        let key: Arc<str> = format!("chat-{:032x}", u128::from_le_bytes(clock::random_bytes())).into();
        let model = message.model.clone().or_else(|| self.beginning.model.take());
        loop {
            let mut owner = connect(&self.state).await?;
            let sent = match self.session {
                Some(session) if message.steers || (model.is_none() && self.beginning.script.is_none()) => {
                    let submission = MessageSubmission {
                        session: session.to_string(),
                        text: message.text.as_str().into(),
                        mode: Some(QueueMode::Steer),
                        images: images.clone(),
                        idempotency_key: Arc::clone(&key),
                    };
                    owner.send(&submission).await.map(|sent| (sent.session, sent.message))
                }
                session => {
                    let submission =
                        self.submission(&message.text, (session, model.clone()), (&images, &key));
                    owner.submit(&submission).await.map(|run| (run.session, run.run))
                }
            };
            match sent {
                Ok(sent) => return Ok(sent),
                Err(HandoverError::Failed(error)) => return Err(error),
                Err(HandoverError::Gone | HandoverError::Crowded(_)) => sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// A task for the conversation, a new one if it has no session.
    fn submission(
        &self,
        text: &str,
        (session, model): (Option<SessionId>, Option<String>),
        (images, key): (&[String], &Arc<str>),
    ) -> RunSubmission {
        let Beginning { agent, workspace, folder, .. } = &self.beginning;
        let conversation = match session {
            Some(session) => SubmissionConversation::Id(session.to_string()),
            None => SubmissionConversation::New,
        };
        RunSubmission {
            text: text.into(),
            images: images.to_vec(),
            history: Vec::new(),
            isolation_key: None,
            conversation,
            agent: agent.clone().filter(|_| session.is_none()),
            script: self.beginning.script,
            provider: None,
            model,
            workspace: workspace.clone().filter(|_| session.is_none()),
            folder: Some(folder.clone()),
            budget: hermod_actors::model::Amounts::default(),
            wall_ms: None,
            timeout_ms: None,
            thinking: None,
            system: None,
            expects: Vec::new(),
            deliver_to: None,
            idempotency_key: Arc::clone(key),
        }
    }
}

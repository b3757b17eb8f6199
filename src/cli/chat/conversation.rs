//! One conversation of the chat: its messages in their order, and what happens in its session. All its tasks end when it
//! is dropped; the one that sends messages ends when it has sent them.

use std::{path::PathBuf, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hermod_actors::model::{Hash, QueueMode, RunId, SessionId};
use hermod_chat::{ChatEvent, Link, Tone};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{follow, poll};
use crate::{
    cli::{background::ServiceWait, run::read_images, shared_owner::SharedOwner},
    clock,
    control::{MessageSubmission, RunSubmission, SubmissionConversation},
    host::HostError,
};

/// Events that wait for the screen. A full queue lets the service wait, which drops deltas and no records.
const MAX_QUEUED_EVENTS: usize = 1_024;

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
pub(super) struct UserMessage {
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
pub(super) enum ConversationUpdate {
    /// An event for the screen.
    Event(ChatEvent),
    /// The conversation has this session.
    Opened(SessionId),
}

/// A conversation that is shown.
#[derive(Debug)]
pub(super) struct Conversation {
    owner: Arc<SharedOwner>,
    told: mpsc::Receiver<ConversationUpdate>,
    sender: mpsc::Sender<ConversationUpdate>,
    messages: mpsc::UnboundedSender<UserMessage>,
    /// The run under way, which is polled.
    active: watch::Sender<Option<RunId>>,
    tasks: JoinSet<()>,
    pub(super) session: Option<SessionId>,
}

impl Conversation {
    /// Begins: connects to the service, and follows the session if there is one.
    pub(super) fn begin(owner: &Arc<SharedOwner>, beginning: Beginning) -> Self {
        let (sender, told) = mpsc::channel(MAX_QUEUED_EVENTS);
        let (messages, outgoing) = mpsc::unbounded_channel();
        let (active, _) = watch::channel(None);
        let tasks = JoinSet::new();
        let outbox = Outbox { owner: Arc::clone(owner), beginning, session: None, told: sender.clone() };
        // It outlives the conversation that is shown until it has sent all messages.
        tokio::spawn(outbox.run(outgoing));
        Self { owner: Arc::clone(owner), told, sender, messages, active, tasks, session: None }
    }

    /// What is told next. May be cancelled at any time.
    pub(super) async fn next(&mut self) -> Option<ChatEvent> {
        let told = self.told.recv().await?;
        Some(self.take(told))
    }

    fn take(&mut self, told: ConversationUpdate) -> ChatEvent {
        match told {
            ConversationUpdate::Event(event) => event,
            ConversationUpdate::Opened(session) => {
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
        self.tasks.spawn(follow::follow(Arc::clone(&self.owner), session, self.sender.clone()));
        self.tasks.spawn(poll::poll(
            Arc::clone(&self.owner),
            session,
            self.active.subscribe(),
            self.sender.clone(),
        ));
    }

    /// Sends a message after those before it.
    pub(super) fn send(&self, message: UserMessage) {
        // The receiver lives as long as the tasks.
        let _ = self.messages.send(message);
    }

    /// Polls this run from now on.
    pub(super) fn set_active(&self, run: Option<RunId>) {
        self.active.send_if_modified(|active| std::mem::replace(active, run) != run);
    }
}

/// Sends messages one after the other.
struct Outbox {
    owner: Arc<SharedOwner>,
    beginning: Beginning,
    session: Option<SessionId>,
    told: mpsc::Sender<ConversationUpdate>,
}

impl Outbox {
    async fn run(mut self, mut outgoing: mpsc::UnboundedReceiver<UserMessage>) {
        if let Err(error) = self.open().await {
            self.tell(ChatEvent::Notice(Tone::Bad, error.to_string())).await;
        }
        while let Some(message) = outgoing.recv().await {
            let local = message.local;
            let event = match self.send(message).await {
                Ok((session, message)) => {
                    if self.session.replace(session) != Some(session) {
                        // A closed receiver is a conversation that is not shown any more.
                        let _ = self.told.send(ConversationUpdate::Opened(session)).await;
                    }
                    ChatEvent::Sent { local, message }
                }
                Err(error) => ChatEvent::NotSent { local, reason: error.to_string() },
            };
            self.tell(event).await;
        }
    }

    async fn tell(&self, event: ChatEvent) {
        let _ = self.told.send(ConversationUpdate::Event(event)).await;
    }

    /// Connects, and finds the session that is named.
    async fn open(&mut self) -> Result<(), HostError> {
        let told = self.told.clone();
        let connected = self.owner.connect_telling(|wait| {
            if let ServiceWait::Command { .. } = wait {
                // A full queue has other things to show.
                let notice = ChatEvent::Notice(Tone::Action, wait.to_string());
                let _ = told.try_send(ConversationUpdate::Event(notice));
            }
        });
        let pid = connected.await?.pid;
        self.tell(ChatEvent::Link(Link::Up(pid))).await;
        let Some(name) = &self.beginning.session else { return Ok(()) };
        let session = self.owner.session_of(name).await?;
        self.session = Some(session);
        let _ = self.told.send(ConversationUpdate::Opened(session)).await;
        Ok(())
    }

    /// Sends a message.
    async fn send(&mut self, message: UserMessage) -> Result<(SessionId, RunId), HostError> {
        let images = read_images(&message.images, "picture").map_err(|error| HostError::usage(error.text))?;
        let images: Vec<String> = images.iter().map(|image| STANDARD.encode(image)).collect();
        let key: Arc<str> = format!("chat-{:032x}", u128::from_le_bytes(clock::random_bytes())).into();
        let model = message.model.clone().or_else(|| self.beginning.model.take());
        match self.session {
            Some(session) if message.steers || (model.is_none() && self.beginning.script.is_none()) => {
                let submission = MessageSubmission {
                    session: session.to_string(),
                    text: message.text.into(),
                    mode: Some(QueueMode::Steer),
                    images,
                    idempotency_key: key,
                };
                let sent = self.owner.send(&submission).await?;
                Ok((sent.session, sent.message))
            }
            session => {
                let submission = self.submission(&message.text, (session, model), (images, key));
                let run = self.owner.submit(&submission).await?;
                Ok((run.session, run.run))
            }
        }
    }

    /// A task for the conversation, a new one if it has no session.
    fn submission(
        &self,
        text: &str,
        (session, model): (Option<SessionId>, Option<String>),
        (images, key): (Vec<String>, Arc<str>),
    ) -> RunSubmission {
        let Beginning { agent, workspace, folder, .. } = &self.beginning;
        let conversation = match session {
            Some(session) => SubmissionConversation::Id(session.to_string()),
            None => SubmissionConversation::New,
        };
        RunSubmission {
            text: text.into(),
            images,
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
            idempotency_key: key,
        }
    }
}

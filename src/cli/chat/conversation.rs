//! One conversation of the chat: its messages in their order, and what happens in its session. All its tasks end when it
//! is dropped; its outbox ends when it has sent the messages.

use std::{path::PathBuf, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hermod_actors::model::{Hash, QueueMode, RunId, SessionId};
use hermod_chat::{ChatEvent, Link, Tone};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{follow, poll, requests::RequestUpdate};
use crate::{
    cli::{background::ServiceWait, format::truncated_line, run::read_images, shared_owner::SharedOwner},
    clock,
    control::{MessageSubmission, RunSubmission, SubmissionConversation},
    host::HostError,
};

/// Events that wait for the screen. A full queue lets the service wait, which drops deltas and no records.
const MAX_QUEUED_EVENTS: usize = 1_024;
/// Characters that are shown of a message that was not sent.
const MAX_UNSENT_CHARS: usize = 200;

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

/// The outboxes of all conversations of a chat: that of the one that is shown, and those that still have messages to send.
#[derive(Debug)]
pub(super) struct Outboxes {
    owner: Arc<SharedOwner>,
    tasks: JoinSet<()>,
    /// Learns what an earlier conversation could not send.
    chat: mpsc::Sender<RequestUpdate>,
}

/// A conversation that is shown.
#[derive(Debug)]
pub(super) struct ShownConversation {
    owner: Arc<SharedOwner>,
    told: mpsc::Receiver<ConversationUpdate>,
    sender: mpsc::Sender<ConversationUpdate>,
    messages: mpsc::UnboundedSender<UserMessage>,
    /// The run under way, which is polled.
    active: watch::Sender<Option<RunId>>,
    tasks: JoinSet<()>,
    pub(super) session: Option<SessionId>,
}

impl Outboxes {
    pub(super) fn new(owner: Arc<SharedOwner>, chat: mpsc::Sender<RequestUpdate>) -> Self {
        Self { owner, tasks: JoinSet::new(), chat }
    }

    /// Begins the conversation that is shown from now on: connects to the service, and follows the session if there is one.
    pub(super) fn begin(&mut self, beginning: Beginning) -> ShownConversation {
        let (sender, told) = mpsc::channel(MAX_QUEUED_EVENTS);
        let (messages, outgoing) = mpsc::unbounded_channel();
        let (active, _) = watch::channel(None);
        let owner = Arc::clone(&self.owner);
        let (told_by_outbox, chat) = (sender.clone(), self.chat.clone());
        let outbox =
            Outbox { owner: Arc::clone(&owner), beginning, session: None, told: told_by_outbox, chat };
        self.tasks.spawn(outbox.run(outgoing));
        ShownConversation { owner, told, sender, messages, active, tasks: JoinSet::new(), session: None }
    }

    /// True while a conversation that is not shown any more has messages to send.
    pub(super) fn are_sending(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.len() > 1
    }

    /// Waits until only the conversation that is shown may have messages to send. May be cancelled at any time.
    pub(super) async fn earlier_sent(&mut self) {
        while self.are_sending() {
            self.tasks.join_next().await;
        }
    }
}

impl ShownConversation {
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

/// Sends messages one after the other. It outlives the conversation that is shown until all are sent.
struct Outbox {
    owner: Arc<SharedOwner>,
    beginning: Beginning,
    session: Option<SessionId>,
    told: mpsc::Sender<ConversationUpdate>,
    chat: mpsc::Sender<RequestUpdate>,
}

impl Outbox {
    async fn run(mut self, mut outgoing: mpsc::UnboundedReceiver<UserMessage>) {
        let told = self.told.clone();
        let opened = tokio::select! {
            opened = self.open() => opened,
            // Each message finds the session by itself.
            () = told.closed() => Ok(()),
        };
        if let Err(error) = opened {
            self.tell(ChatEvent::Notice(Tone::Bad, error.to_string())).await;
        }
        while let Some(message) = outgoing.recv().await {
            let (local, text) = (message.local, message.text.clone());
            match self.send(message).await {
                Ok((session, message)) => {
                    self.take_session(session).await;
                    self.tell(ChatEvent::Sent { local, message }).await;
                }
                Err(error) => self.tell_not_sent(local, &text, &error).await,
            }
        }
    }

    /// Tells the conversation. One that is not shown any more has no use for it.
    async fn tell(&self, event: ChatEvent) {
        self.told.send(ConversationUpdate::Event(event)).await.ok();
    }

    /// Tells the conversation that it has this session, unless it knows.
    async fn take_session(&mut self, session: SessionId) {
        if self.session.replace(session) != Some(session) {
            self.told.send(ConversationUpdate::Opened(session)).await.ok();
        }
    }

    /// Tells the conversation, or the chat if that conversation is not shown any more.
    async fn tell_not_sent(&self, local: u64, text: &str, error: &HostError) {
        let event = ChatEvent::NotSent { local, reason: error.to_string() };
        if self.told.send(ConversationUpdate::Event(event)).await.is_ok() {
            return;
        }
        let text = truncated_line(text, MAX_UNSENT_CHARS);
        let notice =
            ChatEvent::Notice(Tone::Bad, format!("not sent to the conversation before: {text}: {error}"));
        if self.chat.send(RequestUpdate::Unasked(Some(notice))).await.is_err() {
            tracing::warn!(text, %error, "a message was not sent, and its chat has ended");
        }
    }

    /// Connects, and finds the session that is named.
    async fn open(&mut self) -> Result<(), HostError> {
        let told = self.told.clone();
        let connected = self.owner.connect_telling(|wait| {
            if let ServiceWait::Command { .. } = wait {
                let notice = ChatEvent::Notice(Tone::Action, wait.to_string());
                // A full queue has other things to show.
                told.try_send(ConversationUpdate::Event(notice)).ok();
            }
        });
        let pid = connected.await?.pid;
        self.tell(ChatEvent::Link(Link::Up(pid))).await;
        self.find_session().await
    }

    /// Finds the session that is named, unless it is found: a message must not go to another one.
    async fn find_session(&mut self) -> Result<(), HostError> {
        let Some(name) = self.beginning.session.as_deref().filter(|_| self.session.is_none()) else {
            return Ok(());
        };
        let session = self.owner.session_of(name).await?;
        self.take_session(session).await;
        Ok(())
    }

    /// Sends a message.
    async fn send(&mut self, message: UserMessage) -> Result<(SessionId, RunId), HostError> {
        self.find_session().await?;
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

//! One channel: what its parts share, and how it is.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hermod_actors::{
    RunError, Runtime,
    model::{RunId, RunRow, SessionId, Timestamp},
};
use tokio::time::sleep;

use super::{
    address::ChatAddress,
    port::{BotIdentity, ChatError, ChatTransport},
    replies::ReplyMessages,
    state::{ChannelState, StateFile},
};
use crate::{
    clock,
    config::{ChannelSection, Config},
    control::RequestHandler,
    hooks::CommandEvents,
    host::RunSubmitter,
    view::{ChannelStateView, ChannelView},
};

/// Pause before the state is written again.
const WRITE_PAUSE: Duration = Duration::from_secs(1);
/// Most runs above a subagent.
const MAX_DEPTH: usize = 64;
/// How often a short text to a chat is tried.
const MAX_TRIES: u32 = 4;
/// The longest pause for which a short text waits.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The way of channels to the runtime: the same as that of clients over HTTP.
#[derive(Debug, Clone)]
pub struct FrontDoor {
    /// The runtime.
    pub runtime: Arc<Runtime>,
    /// Submits messages.
    pub submitter: Arc<RunSubmitter>,
    /// Answers approvals.
    pub handler: RequestHandler,
    /// Tells hooks of commands.
    pub commands: Arc<CommandEvents>,
}

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) name: Arc<str>,
    pub(super) kind: &'static str,
    /// The name of its target, in `deliver_to` of its runs.
    pub(super) target: String,
    pub(super) section: ChannelSection,
    pub(super) transport: Arc<dyn ChatTransport>,
    pub(super) door: FrontDoor,
    pub(super) state: StateFile,
    pub(super) replies: ReplyMessages,
    pub(super) health: Health,
}

/// How a channel is.
#[derive(Debug)]
pub(super) struct Health(Mutex<Condition>);

#[derive(Debug, Clone)]
struct Condition {
    state: ChannelStateView,
    since: Timestamp,
    error: Option<String>,
    bot: Option<BotIdentity>,
}

impl Health {
    /// That of a channel that is not connected yet.
    pub(super) fn new() -> Self {
        let (state, since) = (ChannelStateView::Connecting, clock::now());
        Self(Mutex::new(Condition { state, since, error: None, bot: None }))
    }

    fn lock(&self) -> MutexGuard<'_, Condition> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel {
    pub(super) fn runtime(&self) -> &Arc<Runtime> {
        &self.door.runtime
    }

    /// The channel as it is shown.
    pub(super) fn view(&self) -> ChannelView {
        let Condition { state, since, error, bot } = self.health.lock().clone();
        ChannelView {
            name: self.name.to_string(),
            kind: self.kind.to_owned(),
            bot: bot.map(|bot| bot.name),
            state,
            since,
            error,
        }
    }

    /// The service has answered.
    pub(super) fn on_connected(&self) {
        self.set_state(ChannelStateView::Connected, None);
    }

    /// The bot is known.
    pub(super) fn on_identified(&self, bot: BotIdentity) {
        self.health.lock().bot = Some(bot);
    }

    /// The service has not answered, or refuses.
    pub(super) fn on_failure(&self, error: &ChatError) {
        let text = match error {
            ChatError::Conflict(why) => {
                format!("{why}; another process receives the updates of this bot, or it has a webhook")
            }
            ChatError::Denied(why) => format!("{why}; the token is not valid any more"),
            ChatError::RateLimited(_)
            | ChatError::Unchanged
            | ChatError::Gone(_)
            | ChatError::Rejected(_)
            | ChatError::Unavailable(_) => error.to_string(),
        };
        tracing::warn!(channel = &*self.name, error = text, "a channel has a failure");
        self.set_state(ChannelStateView::Failing, Some(text));
    }

    fn set_state(&self, state: ChannelStateView, error: Option<String>) {
        let mut health = self.health.lock();
        if health.state != state {
            (health.state, health.since) = (state, clock::now());
        }
        health.error = error;
    }

    /// Changes the state. Waits while it cannot be written: what is not kept would be done again.
    pub(super) async fn keep<T>(&self, mut change: impl FnMut(&mut ChannelState) -> T) -> T {
        loop {
            match self.state.change(&mut change).await {
                Ok(result) => return result,
                Err(error) => self.on_unwritten(&error).await,
            }
        }
    }

    async fn on_unwritten(&self, error: &io::Error) {
        tracing::error!(channel = &*self.name, %error, "the state of a channel cannot be written now");
        sleep(WRITE_PAUSE).await;
    }

    /// The key of the present session of a chat.
    pub(super) async fn session_key(&self, at: &ChatAddress) -> String {
        let chat = at.to_string();
        let generation =
            self.state.read(|state| state.chats.get(&chat).and_then(|chat| chat.generation)).await;
        at.session_key((self.kind, &self.name), generation)
    }

    /// The chat of a session; `None` if it is none of this channel.
    pub(super) async fn chat_of_session(&self, session: SessionId) -> Result<Option<ChatAddress>, RunError> {
        let row = self.runtime().session(session).await?;
        Ok(ChatAddress::of_session_key(&row.key, (self.kind, &self.name)))
    }

    /// The chat in which a run, or the run above a subagent, was asked for; `None` if this channel does not get its result.
    pub(super) async fn chat_of_run(&self, run: RunId) -> Result<Option<ChatAddress>, RunError> {
        let mut row = self.runtime().row(run).await?;
        for _ in 0..MAX_DEPTH {
            let Some(parent) = &row.parent else { break };
            row = self.runtime().row(parent.call.run).await?;
        }
        if self.is_own(&row) { self.chat_of_session(row.session).await } else { Ok(None) }
    }

    /// Whether this channel gets the result of a run.
    pub(super) fn is_own(&self, row: &RunRow) -> bool {
        row.deliver_to.contains(&self.target)
    }

    /// The unfinished runs that were asked for in this chat, in any of its conversations.
    pub(super) async fn open_runs_of(&self, at: &ChatAddress) -> Result<Vec<RunRow>, RunError> {
        let mut rows = Vec::new();
        for row in self.runtime().open_runs().await? {
            if row.parent.is_none() && self.chat_of_session(row.session).await?.as_ref() == Some(at) {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Says a short text in a chat, as well as that can be done now.
    pub(super) async fn say(&self, at: &ChatAddress, text: &str) {
        let mut pause = Duration::from_millis(500);
        for _ in 0..MAX_TRIES {
            match self.transport.send(at, text, &[]).await {
                Ok(_) => return,
                Err(ChatError::RateLimited(asked)) if asked <= MAX_PAUSE => sleep(asked).await,
                Err(error) if error.is_temporary() => sleep(pause).await,
                Err(error) => {
                    tracing::warn!(channel = &*self.name, %error, "a text does not reach its chat");
                    return;
                }
            }
            pause *= 2;
        }
        tracing::warn!(channel = &*self.name, "a text does not reach its chat now, and is left out");
    }

    /// The configuration of the agent of a session; of a new one, that of the channel.
    pub(super) fn agent_config<'c>(&self, config: &'c Config, agent: Option<&str>) -> &'c Config {
        let name = agent.or_else(|| self.section.agent.as_ref().map(|agent| agent.0.as_str()));
        name.and_then(|name| config.for_agent(&name.parse().ok()?)).unwrap_or(config)
    }
}

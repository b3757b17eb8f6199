//! Receives the updates of a channel, one after the other. An update is passed when it is carried out durably, and only
//! then confirmed to the service.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::time::{Instant, sleep};

use super::{
    chat_channel::Channel,
    messages::{self, Interrupted},
    port::{ChatError, IncomingMessage, Update, UpdateEvent},
    questions,
};

/// The first pause after a failure, and the longest, by the kind of failure.
const UNAVAILABLE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
const CONFLICT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
const DENIED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));
/// Pause after an answer without updates that came at once.
const EMPTY_PAUSE: Duration = Duration::from_millis(500);
/// How long the rest of an album is waited for.
const ALBUM_WAIT: Duration = Duration::from_millis(700);
/// Processes that may begin with the same update. It may be what ends them.
const MAX_BEGINNINGS: u32 = 3;

/// Receives until the process takes no more.
pub(super) async fn receive(channel: Arc<Channel>) {
    let mut inbound = Inbound { channel, failures: 0, has_begun: false };
    inbound.identify().await;
    loop {
        if inbound.channel.door.submitter.drain().is_requested() {
            return;
        }
        match inbound.next_batch().await {
            Ok(updates) => {
                if let Err(Interrupted) = inbound.take(updates).await {
                    return;
                }
            }
            Err(error) => inbound.pause(&error).await,
        }
    }
}

struct Inbound {
    channel: Arc<Channel>,
    /// Failures of the service in a row.
    failures: u32,
    /// Whether this process has taken an update.
    has_begun: bool,
}

impl Inbound {
    /// Finds out who the bot is, so that what is kept of another one is forgotten.
    async fn identify(&mut self) {
        loop {
            match self.channel.transport.identify().await {
                Ok(bot) => {
                    self.channel.keep(|state| state.belong_to(&bot.id)).await;
                    self.channel.on_identified(bot);
                    self.failures = 0;
                    return;
                }
                Err(error) => self.pause(&error).await,
            }
        }
    }

    async fn next_batch(&mut self) -> Result<Vec<Update>, ChatError> {
        let from = self.channel.state.read(super::state::ChannelState::next_update).await;
        let began = Instant::now();
        let mut updates = self.channel.transport.receive(from, true).await?;
        self.channel.on_connected();
        self.failures = 0;
        if updates.last().is_some_and(|update| album(update).is_some()) {
            sleep(ALBUM_WAIT).await;
            updates = self.channel.transport.receive(from, false).await?;
        }
        if updates.is_empty() && began.elapsed() < EMPTY_PAUSE {
            sleep(EMPTY_PAUSE).await;
        }
        updates.retain(|update| from.is_none_or(|from| update.number >= from));
        Ok(updates)
    }

    /// Waits after a failure of the service.
    async fn pause(&mut self, error: &ChatError) {
        self.channel.on_failure(error);
        let (first, longest) = match error {
            ChatError::RateLimited(asked) => return sleep(*asked).await,
            ChatError::Conflict(_) => CONFLICT,
            ChatError::Denied(_) | ChatError::Rejected(_) => DENIED,
            ChatError::Unavailable(_) | ChatError::Gone(_) | ChatError::Unchanged => UNAVAILABLE,
        };
        let pause = first.saturating_mul(2_u32.saturating_pow(self.failures)).min(longest);
        self.failures = self.failures.saturating_add(1);
        sleep(pause).await;
    }

    async fn take(&mut self, updates: Vec<Update>) -> Result<(), Interrupted> {
        let mut updates = updates.into_iter().peekable();
        while let Some(update) = updates.next() {
            let (number, mut last) = (update.number, update.number);
            let mut messages = Vec::new();
            let of_album = album(&update).map(str::to_owned);
            if let UpdateEvent::Message(message) = update.event {
                messages.push(message);
                while let Some(next) =
                    updates.next_if(|next| of_album.is_some() && album(next) == of_album.as_deref())
                {
                    last = next.number;
                    messages.extend(into_message(next));
                }
            } else if self.may_begin(number).await {
                self.take_other(update).await;
            }
            if !messages.is_empty() && self.may_begin(number).await {
                self.take_messages(number, messages).await?;
            }
            self.channel.keep(|state| state.pass(last)).await;
        }
        Ok(())
    }

    /// False for an update with which several processes have begun, and none has gone on.
    async fn may_begin(&mut self, number: i64) -> bool {
        if std::mem::replace(&mut self.has_begun, true) {
            return true;
        }
        let beginnings = self.channel.keep(|state| state.begin_with(number)).await;
        if beginnings > MAX_BEGINNINGS {
            tracing::error!(
                channel = &*self.channel.name,
                number,
                "an update is passed over: processes have ended with it"
            );
        }
        beginnings <= MAX_BEGINNINGS
    }

    async fn take_messages(&self, number: i64, messages: Vec<IncomingMessage>) -> Result<(), Interrupted> {
        let taken = AssertUnwindSafe(messages::take(&self.channel, number, &messages)).catch_unwind();
        taken.await.unwrap_or_else(|_| {
            tracing::error!(
                channel = &*self.channel.name,
                number,
                "an update is passed over: it is a defect of this program"
            );
            Ok(())
        })
    }

    async fn take_other(&self, update: Update) {
        match update.event {
            UpdateEvent::Press(press) => {
                if messages::may_press(&self.channel, &press.sender.id, &press.at.chat) {
                    questions::on_press(&self.channel, &press).await;
                } else {
                    let sender = &press.sender.id;
                    tracing::warn!(channel = &*self.channel.name, %sender, "a press is refused");
                    // The sender need not know.
                    let (Ok(()) | Err(_)) =
                        self.channel.transport.acknowledge(&press.id, "You may not use this bot.").await;
                }
            }
            UpdateEvent::Other(why) => {
                tracing::debug!(
                    channel = &*self.channel.name,
                    number = update.number,
                    why,
                    "an update is passed over"
                );
            }
            UpdateEvent::Message(_) => {}
        }
    }
}

fn album(update: &Update) -> Option<&str> {
    match &update.event {
        UpdateEvent::Message(message) => message.album.as_deref(),
        UpdateEvent::Press(_) | UpdateEvent::Other(_) => None,
    }
}

fn into_message(update: Update) -> Option<IncomingMessage> {
    match update.event {
        UpdateEvent::Message(message) => Some(message),
        UpdateEvent::Press(_) | UpdateEvent::Other(_) => None,
    }
}

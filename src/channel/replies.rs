//! The messages in which a reply stands: a preview while it is made, then the whole. A message is edited rather than sent
//! again, also by another process, because its id is kept.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as StdMutex, PoisonError},
};

use tokio::sync::Mutex;

use super::{address::ChatAddress, chat_channel::Channel, port::ChatError};

/// The replies that are not final, by key.
#[derive(Debug, Default)]
pub(super) struct ReplyMessages(StdMutex<BTreeMap<String, Arc<Reply>>>);

/// A reply in a chat.
#[derive(Debug)]
pub(super) struct Reply {
    /// Names it in the state of the channel.
    key: String,
    shown: Mutex<Shown>,
}

/// What stands in the chat.
#[derive(Debug, Default)]
struct Shown {
    /// Whether the messages of earlier processes are among these.
    is_loaded: bool,
    /// Whether it is the whole reply, so that no preview may replace it.
    is_final: bool,
    messages: Vec<ShownMessage>,
}

/// A message, and its text if this process has written it.
#[derive(Debug)]
struct ShownMessage {
    id: String,
    text: Option<String>,
}

/// How far a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyStage {
    /// It is being made.
    Preview,
    /// It is whole. What else stands in the chat of it is deleted.
    Final,
}

impl ReplyMessages {
    /// The reply with this key.
    pub(super) fn get(&self, key: &str) -> Arc<Reply> {
        let mut replies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Reply { key: key.to_owned(), shown: Mutex::default() });
        Arc::clone(replies.entry(key.to_owned()).or_insert_with(new))
    }

    /// Forgets a reply that is final.
    pub(super) fn forget(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl Reply {
    /// Lets the reply stand in the chat as these texts: messages that differ are edited, those that are missing are sent.
    /// Repeated after an error, it goes on where it was. A preview of a final reply does nothing.
    pub(super) async fn show(
        &self,
        channel: &Channel,
        at: &ChatAddress,
        texts: &[String],
        stage: ReplyStage,
    ) -> Result<(), ChatError> {
        let mut shown = self.shown.lock().await;
        if shown.is_final && stage == ReplyStage::Preview {
            return Ok(());
        }
        shown.is_final |= stage == ReplyStage::Final;
        self.load(channel, &mut shown).await;
        for (n, text) in texts.iter().enumerate() {
            self.show_message(channel, at, (&mut shown, n), text).await?;
        }
        while stage == ReplyStage::Final && shown.messages.len() > texts.len() {
            let Some(last) = shown.messages.last() else { break };
            match channel.transport.delete(at, &last.id).await {
                Err(error) if error.is_temporary() => return Err(error),
                // It is not there any more, or cannot be deleted.
                Ok(()) | Err(_) => drop(shown.messages.pop()),
            }
            self.keep(channel, &shown).await;
        }
        Ok(())
    }

    async fn show_message(
        &self,
        channel: &Channel,
        at: &ChatAddress,
        (shown, n): (&mut Shown, usize),
        text: &str,
    ) -> Result<(), ChatError> {
        if let Some(message) = shown.messages.get_mut(n) {
            if message.text.as_deref() == Some(text) {
                return Ok(());
            }
            match channel.transport.edit(at, &message.id, text).await {
                Ok(()) | Err(ChatError::Unchanged) => {
                    message.text = Some(text.to_owned());
                    return Ok(());
                }
                // A person has deleted it: it is sent again.
                Err(ChatError::Gone(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let id = channel.transport.send(at, text, &[]).await?;
        let message = ShownMessage { id, text: Some(text.to_owned()) };
        match shown.messages.get_mut(n) {
            Some(gone) => *gone = message,
            None => shown.messages.push(message),
        }
        self.keep(channel, shown).await;
        Ok(())
    }

    /// Leaves the preview of a stopped run as it is, with a note below it.
    pub(super) async fn mark_stopped(&self, channel: &Channel, at: &ChatAddress) -> Result<(), ChatError> {
        let mut shown = self.shown.lock().await;
        shown.is_final = true;
        self.load(channel, &mut shown).await;
        let Some(ShownMessage { id, text: Some(text) }) = shown.messages.last() else { return Ok(()) };
        let text = super::text::shortened(&format!("{text}\n\n[stopped]"));
        match channel.transport.edit(at, id, &text).await {
            Err(error) if error.is_temporary() => Err(error),
            // The note is not worth more.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn load(&self, channel: &Channel, shown: &mut Shown) {
        if std::mem::replace(&mut shown.is_loaded, true) {
            return;
        }
        let known = channel.state.read(|state| state.reply(&self.key).cloned()).await;
        let known = known.into_iter().flatten().map(|id| ShownMessage { id, text: None });
        shown.messages.extend(known);
    }

    async fn keep(&self, channel: &Channel, shown: &Shown) {
        let messages: Vec<String> = shown.messages.iter().map(|message| message.id.clone()).collect();
        channel.keep(|state| state.keep_reply(&self.key, &messages)).await;
    }
}

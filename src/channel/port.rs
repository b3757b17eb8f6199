//! The port to a chat service: what a channel needs of it. An adapter is a folder beside this file, and one line in
//! `channels.rs`.

use std::{fmt::Debug, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;

use super::address::ChatAddress;
use crate::delivery::AttachedFile;

/// Connects to a chat service as one bot. Errors do not contain its token.
pub(super) trait ChatTransport: Debug + Send + Sync {
    /// Who the bot is.
    fn identify(&self) -> BoxFuture<'_, Result<BotIdentity, ChatError>>;

    /// Waits for updates and returns the oldest, at most a hundred. Those before `from` are confirmed: the service forgets
    /// them. Without `from` none is confirmed. With `wait` false it returns at once.
    fn receive(&self, from: Option<i64>, wait: bool) -> BoxFuture<'_, Result<Vec<Update>, ChatError>>;

    /// Sends a text, with buttons below it, and returns the id of the message.
    fn send<'a>(
        &'a self,
        to: &'a ChatAddress,
        text: &'a str,
        buttons: &'a [Button],
    ) -> BoxFuture<'a, Result<String, ChatError>>;

    /// Sends a file as a message of its own, and returns the id of the message.
    fn send_file<'a>(
        &'a self,
        to: &'a ChatAddress,
        file: &'a AttachedFile,
    ) -> BoxFuture<'a, Result<String, ChatError>>;

    /// Replaces the text of a message of this bot, and removes its buttons.
    fn edit<'a>(
        &'a self,
        at: &'a ChatAddress,
        message: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), ChatError>>;

    /// Deletes a message of this bot.
    fn delete<'a>(&'a self, at: &'a ChatAddress, message: &'a str) -> BoxFuture<'a, Result<(), ChatError>>;

    /// Ends the wait of a person who has pressed a button, with a short note.
    fn acknowledge<'a>(&'a self, press: &'a str, note: &'a str) -> BoxFuture<'a, Result<(), ChatError>>;

    /// Shows for some seconds that an answer is being written.
    fn signal_typing<'a>(&'a self, to: &'a ChatAddress) -> BoxFuture<'a, Result<(), ChatError>>;

    /// Fetches a file that was sent to the bot, if it has at most `max_bytes`.
    fn fetch<'a>(&'a self, file: &'a str, max_bytes: usize) -> BoxFuture<'a, Result<Bytes, ChatError>>;
}

/// A bot, as its service knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BotIdentity {
    /// Its id.
    pub(super) id: String,
    /// Its name.
    pub(super) name: String,
}

/// What has happened at the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    /// Its number, which grows within one connection.
    pub(super) number: i64,
    /// What it is.
    pub(super) event: UpdateEvent,
}

/// The content of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UpdateEvent {
    /// A message in a chat.
    Message(IncomingMessage),
    /// A press of a button.
    Press(ButtonPress),
    /// Nothing that a channel uses, with the reason.
    Other(String),
}

/// A message in a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IncomingMessage {
    /// Where it was sent to.
    pub(super) at: ChatAddress,
    /// Who has sent it.
    pub(super) sender: Sender,
    /// Whether the chat has other people too.
    pub(super) is_group: bool,
    /// Its id in the chat.
    pub(super) id: String,
    /// The text, or that of its pictures.
    pub(super) text: String,
    /// The pictures, each by the id of its file and its size.
    pub(super) pictures: Vec<Picture>,
    /// Messages with the same album belong together.
    pub(super) album: Option<String>,
    /// What it has that is not taken, such as `a voice message`.
    pub(super) untaken: Option<&'static str>,
}

/// A picture that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    /// The id of the file.
    pub(super) file: String,
    /// Its size, if it is known.
    pub(super) bytes: Option<u64>,
}

/// A person at a chat service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sender {
    /// The id.
    pub(super) id: String,
    /// The name that others see.
    pub(super) name: String,
}

/// A press of a button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ButtonPress {
    /// Its id.
    pub(super) id: String,
    /// Where the message with the button is.
    pub(super) at: ChatAddress,
    /// Who has pressed it.
    pub(super) sender: Sender,
    /// The data of the button.
    pub(super) data: String,
}

/// A button below a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Button {
    /// What stands on it.
    pub(super) label: String,
    /// What comes with a press, at most 64 bytes.
    pub(super) data: String,
}

/// Why the service has not done what was asked of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChatError {
    /// It takes nothing for this time.
    #[error("it asks to wait for {} s", .0.as_secs())]
    RateLimited(Duration),
    /// Another process receives the updates of the same bot.
    #[error("{0}")]
    Conflict(String),
    /// The token is not valid.
    #[error("{0}")]
    Denied(String),
    /// The message has this text already.
    #[error("the message is not changed")]
    Unchanged,
    /// The message is not there, or cannot be changed.
    #[error("{0}")]
    Gone(String),
    /// This request will never succeed.
    #[error("{0}")]
    Rejected(String),
    /// The service cannot be reached, or fails.
    #[error("{0}")]
    Unavailable(String),
}

impl ChatError {
    /// Whether the same request may succeed later.
    pub(super) const fn is_temporary(&self) -> bool {
        matches!(self, Self::RateLimited(_) | Self::Conflict(_) | Self::Denied(_) | Self::Unavailable(_))
    }
}

//! Delivers messages of the outbox to chats. The reply of a run is made of its records, so it is the one that was streamed,
//! also in a process that has streamed nothing.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::{
    RunError,
    model::{OutboxContent, OutboxMessage, Outcome, OutcomeDetail, RunId},
    shaping::{
        FinalReply, ReasoningMode, ReplyOptions, ReplyPiece, ReplyShape, ReplyShaper, ReplySource, Verbosity,
        is_silent_reply,
    },
};
use tokio::time::timeout;

use super::{
    address::ChatAddress,
    chat_channel::Channel,
    port::ChatError,
    replies::{Reply, ReplyStage},
    text,
};
use crate::delivery::{AttachedFile, ChatOutput, SendResult};

/// How long the records of a run may take to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The outbox of a channel.
#[derive(Debug)]
pub(super) struct ChannelOutput(pub(super) Arc<Channel>);

/// What becomes of the messages of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// They have these texts; without any they are deleted.
    Texts(Vec<String>),
    /// They stay, with a note.
    Stopped,
}

impl ChatOutput for ChannelOutput {
    fn send<'a>(
        &'a self,
        chat: Option<&'a str>,
        message: &'a OutboxMessage,
        files: &'a [AttachedFile],
    ) -> BoxFuture<'a, SendResult> {
        Box::pin(async move {
            match self.deliver(chat, message, files).await {
                Ok(()) => SendResult::Delivered,
                Err(Undelivered::Chat(ChatError::RateLimited(pause))) => {
                    let why = ChatError::RateLimited(pause).to_string();
                    SendResult::Temporary { why, pause: Some(pause) }
                }
                Err(Undelivered::Chat(error)) if error.is_temporary() => {
                    SendResult::Temporary { why: error.to_string(), pause: None }
                }
                Err(Undelivered::Read(RunError::NoSession(_))) => {
                    SendResult::Permanent { why: "its session is gone".to_owned() }
                }
                Err(Undelivered::Read(error)) => {
                    SendResult::Temporary { why: error.to_string(), pause: None }
                }
                Err(error) => SendResult::Permanent { why: error.to_string() },
            }
        })
    }
}

/// Why a message is not delivered.
#[derive(Debug, thiserror::Error)]
enum Undelivered {
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error(transparent)]
    Read(#[from] RunError),
    #[error("its session is no chat of this channel")]
    NoChat,
}

impl ChannelOutput {
    async fn deliver(
        &self,
        chat: Option<&str>,
        message: &OutboxMessage,
        files: &[AttachedFile],
    ) -> Result<(), Undelivered> {
        let channel = &*self.0;
        let at = match chat {
            Some(chat) => ChatAddress::parse(chat),
            None => channel.chat_of_session(message.session).await?.ok_or(Undelivered::NoChat)?,
        };
        let (key, ending) = match &message.content {
            OutboxContent::Message { text, .. } | OutboxContent::Notice { text } => {
                (message.id.to_string(), Ending::Texts(text::messages(text)))
            }
            OutboxContent::Result { leg, ended, text, .. } => {
                let reply = self.reply(message.run, *leg).await;
                let ending = reply.map_or_else(|| without_records(ended, text), |reply| ending(&reply));
                let key = if chat.is_some() { message.id.to_string() } else { reply_key(message.run, *leg) };
                (key, ending)
            }
        };
        let reply = channel.replies.get(&key);
        self.end(&reply, &at, &ending).await?;
        self.send_files(&at, &message.id, files).await?;
        channel.replies.forget(&key);
        Ok(())
    }

    /// Sends the files of a message. Those that an earlier attempt has sent are known by the state of the channel.
    async fn send_files(&self, at: &ChatAddress, id: &str, files: &[AttachedFile]) -> Result<(), ChatError> {
        let channel = &*self.0;
        let key = format!("{id}:files");
        let mut sent = channel.state.read(|state| state.reply(&key).cloned().unwrap_or_default()).await;
        for file in files.iter().skip(sent.len()) {
            sent.push(channel.transport.send_file(at, file).await?);
            channel.keep(|state| state.keep_reply(&key, &sent)).await;
        }
        Ok(())
    }

    async fn end(&self, reply: &Reply, at: &ChatAddress, ending: &Ending) -> Result<(), ChatError> {
        match ending {
            Ending::Texts(texts) => reply.show(&self.0, at, texts, ReplyStage::Final).await,
            Ending::Stopped => reply.mark_stopped(&self.0, at).await,
        }
    }

    /// The reply of a leg of a run; `None` if its records cannot be read.
    async fn reply(&self, run: RunId, leg: u32) -> Option<FinalReply> {
        let read = async {
            let row = self.0.runtime().row(run).await.ok()?;
            let mut watch = self.0.runtime().watch(row.session, row.first);
            let mut shaper = ReplyShaper::new(options(Verbosity::Off));
            let mut ended = 0;
            loop {
                let event = watch.next_shared().await.ok()?;
                let event = event.event();
                if event.run != Some(run) {
                    continue;
                }
                for piece in shaper.on_event(&event.body, 0) {
                    if let ReplyPiece::Final(reply) = piece {
                        ended += 1;
                        if ended == leg {
                            return Some(reply);
                        }
                    }
                }
            }
        };
        timeout(READ_TIMEOUT, read).await.ok().flatten()
    }
}

/// The key of the reply of a leg of a run.
pub(super) fn reply_key(run: RunId, leg: u32) -> String {
    format!("{run}-{leg}")
}

/// How a chat gets a reply.
pub(super) const fn options(verbose: Verbosity) -> ReplyOptions {
    ReplyOptions { shape: ReplyShape::Deltas, reasoning: ReasoningMode::Off, verbose }
}

fn ending(reply: &FinalReply) -> Ending {
    let text = reply.text.as_deref().unwrap_or_default();
    match (reply.ended.outcome, reply.source) {
        (Outcome::Stopped, _) => Ending::Stopped,
        (_, Some(ReplySource::Failure)) => Ending::Texts(vec![failure(&reply.ended)]),
        (_, Some(ReplySource::Partial)) => {
            Ending::Texts(text::messages(&format!("{text}\n\n[{}]", one_line(&reply.ended))))
        }
        _ => Ending::Texts(text::messages(text)),
    }
}

/// What is shown of a run that has ended without its session.
fn without_records(ended: &OutcomeDetail, text: &str) -> Ending {
    match ended.outcome {
        Outcome::Stopped => Ending::Stopped,
        Outcome::Completed if is_silent_reply(text) => Ending::Texts(Vec::new()),
        Outcome::Completed => Ending::Texts(text::messages(text)),
        Outcome::Failed
        | Outcome::TimedOut
        | Outcome::BudgetExhausted
        | Outcome::LoopDetected
        | Outcome::Refused => Ending::Texts(vec![failure(ended)]),
    }
}

/// The line about a run that has not completed.
fn failure(ended: &OutcomeDetail) -> String {
    text::shortened(&format!("No answer: {}", one_line(ended)))
}

fn one_line(ended: &OutcomeDetail) -> String {
    ended.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

//! A message of a chat becomes a message to its session, under a key that is made of the update: however often the update
//! comes, there is one message.

use std::time::Duration;

use bytes::Bytes;
use hermod_actors::{
    RunError,
    model::{ImageFormat, QueueMode, SessionRow},
};
use tokio::time::sleep;

use super::{
    chat_channel::Channel,
    commands::ChatCommand,
    port::{ChatError, IncomingMessage},
    questions,
};
use crate::{
    control::{RequestError, RequestErrorKind},
    host::{HostError, MessageOptions, RunInput, Submission, request_error},
};

/// Most bytes of a picture, and most pictures of a message.
const MAX_PICTURE_BYTES: usize = 8 << 20;
const MAX_PICTURES: usize = 10;
/// How often a message is tried that cannot be taken now, and the first pause between.
const MAX_TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause for which a picture is waited for.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// What stands in place of a text that is missing.
const ONLY_PICTURES: &str = "(a picture without words)";

/// The process takes no more: what is not carried out is so by the next one.
#[derive(Debug)]
pub(super) struct Interrupted;

/// Why a message is not taken.
enum Untaken {
    /// It may be taken later.
    Temporary(String),
    /// It will never be taken.
    Permanent(String),
    /// The runtime has ended, or is about to.
    Interrupted,
}

/// Carries out messages that belong together, of the update with this number.
pub(super) async fn take(
    channel: &Channel,
    number: i64,
    messages: &[IncomingMessage],
) -> Result<(), Interrupted> {
    let Some(first) = messages.first() else { return Ok(()) };
    if !is_allowed(channel, first) {
        refuse(channel, first).await;
        return Ok(());
    }
    let mut pause = FIRST_PAUSE;
    for n in 1.. {
        let why = match carry_out(channel, number, messages).await {
            Ok(()) => return Ok(()),
            Err(Untaken::Interrupted) => return Err(Interrupted),
            Err(Untaken::Temporary(_)) if n < MAX_TRIES => {
                sleep(pause).await;
                pause *= 2;
                continue;
            }
            Err(Untaken::Temporary(why) | Untaken::Permanent(why)) => why,
        };
        tracing::warn!(channel = &*channel.name, number, why, "a message of a chat is not taken");
        channel.say(&first.at, &format!("This message was not taken: {why}")).await;
        break;
    }
    Ok(())
}

fn is_allowed(channel: &Channel, message: &IncomingMessage) -> bool {
    let allow = &channel.section.allow.0;
    allow.contains(&message.sender.id) || allow.contains(&message.at.chat)
}

/// Whether a press of this sender in this chat is taken.
pub(super) fn may_press(channel: &Channel, sender: &str, chat: &str) -> bool {
    let allow = &channel.section.allow.0;
    allow.contains(sender) || allow.contains(chat)
}

/// Answers a sender that is not allowed, once.
async fn refuse(channel: &Channel, message: &IncomingMessage) {
    let (sender, chat) = (&message.sender.id, &message.at.chat);
    tracing::warn!(channel = &*channel.name, %sender, %chat, "a sender is refused, who is not in `allow`");
    if channel.keep(|state| state.refuse(sender)).await {
        let ids = if sender == chat {
            format!("Your id is {sender}.")
        } else {
            format!("Your id is {sender}, that of this chat is {chat}.")
        };
        let text = format!("You may not use this bot. {ids} Its operator can add one of them to `allow`.");
        channel.say(&message.at, &text).await;
    }
}

async fn carry_out(channel: &Channel, number: i64, messages: &[IncomingMessage]) -> Result<(), Untaken> {
    let Some(first) = messages.first() else { return Ok(()) };
    if let Some(command) = ChatCommand::parse(&first.text) {
        let told = command.execute(channel, first, number).await?;
        channel.say(&first.at, &told).await;
        return Ok(());
    }
    if let Some(what) = first.untaken {
        channel.say(&first.at, &format!("I take text and pictures, and not {what}.")).await;
        if first.text.trim().is_empty() {
            return Ok(());
        }
    }
    let has_pictures = messages.iter().any(|message| !message.pictures.is_empty());
    if !has_pictures && questions::answer_with_text(channel, number, first).await {
        return Ok(());
    }
    let pictures = pictures(channel, messages).await?;
    let submission = submission(channel, number, (messages, pictures)).await?;
    // A repeat whose album has more pictures by now is the same message.
    match channel.door.submitter.submit(submission).await {
        Ok(_) | Err(HostError::Run(RunError::KeyConflict(_) | RunError::MessageKeyConflict { .. })) => Ok(()),
        Err(HostError::End(_) | HostError::Run(RunError::Terminated(_))) => Err(Untaken::Interrupted),
        Err(_) if channel.door.submitter.drain().is_requested() => Err(Untaken::Interrupted),
        Err(error) => Err(request_error(error).into()),
    }
}

impl From<RequestError> for Untaken {
    fn from(error: RequestError) -> Self {
        match error.kind {
            RequestErrorKind::Usage | RequestErrorKind::Config | RequestErrorKind::Denied => {
                Self::Permanent(error.text)
            }
            RequestErrorKind::Busy
            | RequestErrorKind::Crowded
            | RequestErrorKind::Store
            | RequestErrorKind::Internal => Self::Temporary(error.text),
        }
    }
}

impl From<RunError> for Untaken {
    fn from(error: RunError) -> Self {
        if matches!(error, RunError::Terminated(_)) {
            return Self::Interrupted;
        }
        RequestError::from(error).into()
    }
}

/// The pictures of the messages. One that cannot be had refuses all.
async fn pictures(channel: &Channel, messages: &[IncomingMessage]) -> Result<Vec<Bytes>, Untaken> {
    let mut pictures = Vec::new();
    for picture in messages.iter().flat_map(|message| &message.pictures).take(MAX_PICTURES) {
        let too_large = || {
            let megabytes = MAX_PICTURE_BYTES >> 20;
            Untaken::Permanent(format!("a picture has at most {megabytes} MiB; send it smaller"))
        };
        if picture.bytes.is_some_and(|bytes| bytes > MAX_PICTURE_BYTES as u64) {
            return Err(too_large());
        }
        let bytes = match channel.transport.fetch(&picture.file, MAX_PICTURE_BYTES).await {
            Ok(bytes) => bytes,
            Err(ChatError::RateLimited(asked)) if asked <= MAX_PAUSE => {
                sleep(asked).await;
                return Err(Untaken::Temporary("the picture does not come".to_owned()));
            }
            Err(error) if error.is_temporary() => {
                return Err(Untaken::Temporary(format!("the picture does not come: {error}")));
            }
            Err(error) => return Err(Untaken::Permanent(format!("the picture cannot be had: {error}"))),
        };
        if ImageFormat::of_bytes(&bytes).is_none() {
            return Err(Untaken::Permanent("a picture is a PNG, JPEG, GIF or WebP".to_owned()));
        }
        pictures.push(bytes);
    }
    Ok(pictures)
}

async fn submission(
    channel: &Channel,
    number: i64,
    (messages, images): (&[IncomingMessage], Vec<Bytes>),
) -> Result<Submission, Untaken> {
    let Some(first) = messages.first() else { return Err(Untaken::Permanent("it is empty".to_owned())) };
    let key = channel.session_key(&first.at).await;
    let session = channel.runtime().session_of_key(&key).await?;
    let settings = channel.door.submitter.settings();
    let config =
        channel.agent_config(&settings.config, session.as_ref().map(|session| session.agent.as_str()));
    let mut deliver_to = config.agent.deliver_to.0.clone();
    deliver_to.push(channel.target.clone());
    let agent = session.is_none().then(|| channel.section.agent.as_ref().map(|agent| agent.0.clone()));
    let mode = mode(channel, first, session.as_ref(), config.queue.mode.0).await?;
    let input = RunInput {
        text: text(messages).into(),
        images,
        history: Vec::new(),
        isolation_key: None,
        expects: Vec::new(),
        request_hash: None,
    };
    let options = MessageOptions { mode: Some(mode), may_steer: true };
    Ok(Submission {
        agent: agent.flatten(),
        deliver_to: Some(deliver_to),
        idempotency_key: Some(format!("channel:{}:{number}:{}", channel.name, first.id).into()),
        ..Submission::of_message(key, input, options)
    })
}

/// The text of messages that belong together. In a group it says who speaks.
fn text(messages: &[IncomingMessage]) -> String {
    let texts = messages.iter().map(|message| message.text.trim()).filter(|text| !text.is_empty());
    let text = texts.collect::<Vec<_>>().join("\n");
    let text = if text.is_empty() { ONLY_PICTURES.to_owned() } else { text };
    match messages.first() {
        Some(first) if first.is_group => format!("{}: {text}", first.sender.name),
        Some(_) | None => text,
    }
}

/// The mode of a message. Where a run is under way whose result this chat does not get, the message becomes a run of its
/// own, so that an answer comes.
async fn mode(
    channel: &Channel,
    message: &IncomingMessage,
    session: Option<&SessionRow>,
    configured: QueueMode,
) -> Result<QueueMode, RunError> {
    let chat = message.at.to_string();
    let of_chat = channel.state.read(|state| state.chats.get(&chat).and_then(|chat| chat.mode)).await;
    let of_session = session.and_then(|session| session.queue.mode);
    let of_channel = channel.section.mode.map(|mode| mode.0);
    let mode = of_chat.or(of_session).or(of_channel).unwrap_or(configured);
    let Some(session) = session.filter(|_| mode != QueueMode::Interrupt) else { return Ok(mode) };
    let open = channel.runtime().open_runs().await?;
    let is_foreign = open.iter().any(|row| row.session == session.id && !channel.is_own(row));
    Ok(if is_foreign { QueueMode::Followup } else { mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{address::ChatAddress, port::Sender};

    #[test]
    fn messages_of_an_album_are_one_text() {
        let message = |text: &str, is_group| IncomingMessage {
            at: ChatAddress::parse("1"),
            sender: Sender { id: "2".into(), name: "Ann".into() },
            is_group,
            id: "3".into(),
            text: text.into(),
            pictures: Vec::new(),
            album: None,
            untaken: None,
        };
        assert_eq!(text(&[message("one ", false), message("", false), message("two", false)]), "one\ntwo");
        assert_eq!(text(&[message("", false)]), ONLY_PICTURES);
        assert_eq!(text(&[message("hello", true)]), "Ann: hello");
    }
}

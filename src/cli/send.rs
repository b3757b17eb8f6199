//! `hermod send` and `hermod messages`: send a message to a session of the service, and show what became of one.

use std::{path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand};
use hermod_actors::{
    SanitizedText,
    model::{MessageState, Outcome, QueueMode},
};
use serde::Serialize;
use tokio::time::sleep;

use super::{
    CliError, Exit, background, examples, print, print_json, print_note, run::read_images,
    sessions::mode_parser,
};
use crate::{
    clock,
    control::{
        ControlRequest, ControlResponse, MessageStatus, MessageSubmission, RequestError, RequestErrorKind,
    },
    host::{HandoverError, HostError, Identifier, OwnerConnection, StoreClient, unexpected_response},
};

/// Pauses between two looks at a message that is waited for: the first, and the longest.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Tries to send while services come and go, and the pause between two. The key makes a repeat harmless.
const MAX_TRIES: u32 = 25;
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Send a message to a session of the running service; it steers the run under way, or becomes a run
#[derive(Debug, Args)]
#[command(after_help = examples::SEND)]
pub(crate) struct SendArgs {
    /// A session's id or key, the id of one of its runs, or `last`; a key that no session has makes a new one
    session: Identifier,
    /// What to tell
    text: String,
    /// What happens to it while a run is under way [default: as set for the session, else queue.mode]
    #[arg(long, value_parser = mode_parser())]
    mode: Option<QueueMode>,
    /// A picture that belongs to it: PNG, JPEG, GIF or WebP; may be repeated
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// Start a service in the background if none runs; it ends when it was idle for 10 minutes
    #[arg(long)]
    start: bool,
    /// Wait until it is answered or dropped, and print the answer
    #[arg(long)]
    wait: bool,
    /// An idempotency key: a repeat with it gets the first message
    #[arg(long)]
    key: Option<Identifier>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Messages to sessions
#[derive(Debug, Args)]
pub(crate) struct MessagesArgs {
    #[command(subcommand)]
    command: MessagesCommand,
}

#[derive(Debug, Subcommand)]
enum MessagesCommand {
    /// Show what became of a message
    Show {
        /// The message's id, as `hermod send` prints it
        id: Identifier,
        /// Wait until it is answered or dropped, and print the answer
        #[arg(long)]
        wait: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// A message with its answer: `{message, session, state, run?, reason?, answer?}`.
#[derive(Debug, Serialize)]
struct AnsweredMessage {
    #[serde(flatten)]
    status: MessageStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
}

/// Sends the message to the service; returns when it is durable, with `--wait` when its fate is known.
pub(crate) async fn execute(args: SendArgs, client: &StoreClient) -> Result<Exit, CliError> {
    let key = args.key.map(|key| Arc::<str>::from(String::from(key)));
    let own_key = || format!("send-{:032x}", u128::from_le_bytes(clock::random_bytes())).into();
    let images = read_images(&args.attach, "--attach")?;
    let message = MessageSubmission {
        session: args.session.into(),
        text: args.text.into(),
        mode: args.mode,
        images: images.iter().map(|image| STANDARD.encode(image)).collect(),
        idempotency_key: key.unwrap_or_else(own_key),
    };
    let sent = send(&message, args.start, client).await?;
    if !args.wait && !args.json {
        print_message(&sent)?;
        return Ok(Exit::Ok);
    }
    show(sent, (args.wait, args.json), client).await
}

/// Shows a message.
pub(crate) async fn messages(args: MessagesArgs, client: &StoreClient) -> Result<Exit, CliError> {
    let MessagesCommand::Show { id, wait, json } = args.command;
    show(status(id.into(), client).await?, (wait, json), client).await
}

/// Sends a message, again to the next service if one ends before it has answered.
async fn send(
    message: &MessageSubmission,
    start: bool,
    client: &StoreClient,
) -> Result<MessageStatus, CliError> {
    for _ in 0..MAX_TRIES {
        let mut owner = if start {
            background::connect(client.state(), |wait| print_note(wait.to_string())).await?
        } else {
            OwnerConnection::connect(client.state()).await?.ok_or_else(no_service)?
        };
        match owner.send(message).await {
            Ok(sent) => return Ok(sent),
            Err(HandoverError::Failed(error)) => return Err(error.into()),
            Err(HandoverError::Gone | HandoverError::Crowded(_)) => sleep(RETRY_PAUSE).await,
        }
    }
    let text =
        "the processes that hold the store come and go too fast to be told; try again with the same --key";
    Err(HostError::from(RequestError::new(RequestErrorKind::Busy, text)).into())
}

fn no_service() -> HostError {
    let text = "no service runs: start one with `hermod serve`, or in the background with --start, or carry the task out here \
                with `hermod run --session`";
    HostError::usage(text.to_owned())
}

async fn status(message: String, client: &StoreClient) -> Result<MessageStatus, CliError> {
    let request = ControlRequest::MessagesShow { message };
    let ControlResponse::Message(status) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    Ok(status)
}

/// Prints a message, with `wait` when its fate is known, and its answer.
async fn show(
    mut status: MessageStatus,
    (wait, json): (bool, bool),
    client: &StoreClient,
) -> Result<Exit, CliError> {
    let [mut pause, longest] = POLL_INTERVALS;
    while wait && !status.is_settled() {
        sleep(pause).await;
        pause = (pause * 2).min(longest);
        status = self::status(status.message.to_string(), client).await?;
    }
    let run = match status.run.filter(|_| status.is_settled()) {
        Some(run) => Some(client.run_detail(run.to_string()).await?),
        None => None,
    };
    let ended = run.as_ref().and_then(|run| run.run.ended.as_ref());
    let exit = match status.state {
        MessageState::Dropped => ended.map_or(Exit::Failed, Exit::from),
        MessageState::Queued if wait => Exit::Failed,
        MessageState::Queued | MessageState::Injected | MessageState::Answered => Exit::Ok,
    };
    let has_answer = ended.is_some_and(|ended| ended.outcome == Outcome::Completed);
    let answer = run.as_ref().filter(|_| has_answer).and_then(|run| run.last_text.clone());
    if json {
        print_json(&AnsweredMessage { status, answer })?;
    } else if let (true, Some(answer)) = (wait, &answer) {
        print(answer)?;
    } else {
        print_message(&status)?;
    }
    Ok(if wait { exit } else { Exit::Ok })
}

fn print_message(status: &MessageStatus) -> Result<(), CliError> {
    let MessageStatus { message, session, state, run, reason } = status;
    let state: &str = (*state).into();
    let run = run.filter(|run| run != message).map(|run| format!(" in run {run}")).unwrap_or_default();
    print(&format!("message {message} to session {session}: {state}{run}"))?;
    if let Some(reason) = reason {
        print_note(SanitizedText::sanitize(reason).to_string());
    }
    Ok(())
}

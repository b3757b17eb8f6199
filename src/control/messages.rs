//! Messages of other processes to sessions: a message as it crosses the socket, and what became of one.

use std::sync::Arc;

use hermod_actors::model::{MessageFate, MessageState, QueueMode, RunId, RunRow, SessionId};
use serde::{Deserialize, Serialize};

use super::{
    error::RequestError,
    handler::{RequestHandler, with_heartbeats},
    protocol::{ControlRequest, ControlResponse},
    reader::StoreReader,
    submission::SubmissionService,
};
use tokio::sync::mpsc;

/// A message to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageSubmission {
    /// Id or key of the session, the id of one of its runs, or `last`; a key that no session has names a new one.
    pub session: String,
    /// The text.
    pub text: Arc<str>,
    /// The mode; absent is that of the session, else the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<QueueMode>,
    /// The images in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// A repeat with this key gets the first message.
    pub idempotency_key: Arc<str>,
}

/// A message and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageStatus {
    /// The message.
    pub message: RunId,
    /// Its session.
    pub session: SessionId,
    /// The state.
    pub state: MessageState,
    /// The run in which it is or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Why it was dropped, or why it still waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl MessageStatus {
    /// Whether nothing more becomes of it by itself: it is answered, dropped, or waits for a run that has not begun.
    pub const fn is_settled(&self) -> bool {
        match self.state {
            MessageState::Answered | MessageState::Dropped => true,
            MessageState::Queued => self.reason.is_some(),
            MessageState::Injected => false,
        }
    }
}

impl StoreReader {
    /// What became of a message. A run that was submitted as a task counts as a message of its own.
    pub async fn message(&self, id: &str) -> Result<MessageStatus, RequestError> {
        let unknown = || RequestError::usage(format!("there is no message `{id}`"));
        let message: RunId = id.parse().map_err(|_| unknown())?;
        let row = self.read(|rows| rows.message(message)).await?;
        let run: Option<RunRow> = match row.as_ref().map_or(Some(message), |row| row.place.run()) {
            Some(run) => self.read(|rows| rows.run(run)).await?,
            None => None,
        };
        let session = row.as_ref().map(|row| row.session).or_else(|| run.as_ref().map(|run| run.session));
        let session = session.ok_or_else(unknown)?;
        let MessageFate { state, run, reason } = MessageFate::of(row.as_ref(), run.as_ref());
        Ok(MessageStatus { message, session, state, run, reason })
    }
}

impl RequestHandler {
    /// Answers a request about messages to sessions; `None` if the runtime has ended.
    pub(super) async fn answer_about_messages(
        &self,
        request: ControlRequest,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the handler passes no other request")]
        match request {
            ControlRequest::MessagesShow { message } => {
                Ok(Some(ControlResponse::Message(self.reader().message(&message).await?)))
            }
            ControlRequest::MessagesSend(message) => {
                self.send_message(|to| async move { to.send(*message).await }, to).await
            }
            ControlRequest::MessagesSendFile { name } => {
                self.send_message(|to| async move { to.send_file(name).await }, to).await
            }
            _ => Err(RequestError::internal("this is no request about messages")),
        }
    }

    /// Passes a message on, with heartbeats until it is durable.
    async fn send_message<F: Future<Output = Result<RunId, RequestError>>>(
        &self,
        send: impl FnOnce(Arc<dyn SubmissionService>) -> F,
        to: &mpsc::Sender<ControlResponse>,
    ) -> Result<Option<ControlResponse>, RequestError> {
        let slot = self.slot()?;
        if !slot.kind().is_service() {
            return Err(RequestError::usage(format!(
                "process {} holds the store and is no service: it ends with its own work. When it has ended, start \
                 `hermod serve`, or continue the conversation with `hermod run --session`",
                std::process::id()
            )));
        }
        let sent = async { slot.execute_with(|_, service| send(service)).await.transpose() };
        let Some(message) = with_heartbeats(sent, to).await?.flatten() else { return Ok(None) };
        Ok(Some(ControlResponse::Message(self.reader().message(&message.to_string()).await?)))
    }
}

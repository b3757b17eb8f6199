//! The client's side of a handover: asks the owner of the store to take a run, and follows runs and sessions there.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hermod_actors::{
    RunResult,
    model::{EventBody, Record, RecordJson, RunId, Seq, SessionId, StopReason},
    port::FeedCursor,
};
use tokio::time::sleep;

use super::submission_file::SubmissionFile;
use crate::{
    control::{
        AskError, ControlClient, ControlRequest, ControlResponse, FedRecord, FollowedContent, FollowedEvent,
        MAX_LINE_BYTES, MessageStatus, MessageSubmission, OwnerKind, RequestError, RequestErrorKind,
        RunSubmission, SubmittedRun,
    },
    host::{
        error::HostError,
        store_client::{unexpected_response, while_crowded},
    },
    view::EventIds,
};

/// Bytes of a line that the request around a submission may need.
const REQUEST_BYTES: usize = 64;

/// Pause between two tries to find an owner that may come.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A connection to the owner of the store.
#[derive(Debug)]
pub struct OwnerConnection {
    client: ControlClient,
    state: PathBuf,
    /// Its process id.
    pub pid: u32,
    /// Whether it takes submissions, and how long; `None` if it does not.
    pub submissions: Option<OwnerKind>,
}

/// Why a request to the owner has no answer.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The owner has gone: the request may be repeated to the next one.
    #[error("the process that held the store has gone")]
    Gone,
    /// The process that holds the store has too many clients: the request may be repeated to it.
    #[error(transparent)]
    Crowded(RequestError),
    /// A repeat does not help.
    #[error(transparent)]
    Failed(#[from] HostError),
}

impl From<AskError> for HandoverError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Disconnected => Self::Gone,
            AskError::Rejected(error) => error.into(),
        }
    }
}

impl From<RequestError> for HandoverError {
    fn from(error: RequestError) -> Self {
        if error.kind == RequestErrorKind::Crowded {
            Self::Crowded(error)
        } else {
            Self::Failed(error.into())
        }
    }
}

/// A record, or why this version of the program cannot read it.
pub type DecodedRecord = Result<Arc<Record>, String>;

/// The record, or the text of the error.
pub fn as_text(record: &DecodedRecord) -> Result<&Record, &str> {
    record.as_deref().map_err(String::as_str)
}

/// The next thing that the owner tells about a followed run or session.
#[derive(Debug)]
pub enum FollowedStep {
    /// A record of the session.
    Record(EventIds, DecodedRecord),
    /// An event that is no record.
    Event(EventIds, EventBody),
    /// A record of the feed of all sessions, and the place behind it.
    Fed(FeedCursor, EventIds, DecodedRecord),
    /// A line for the user.
    Note(String),
    /// The run has its outcome.
    Ended(Box<RunResult>),
    /// This run waits for a person, and nothing else is in progress.
    Parked(RunId),
}

/// Events that are followed at the owner.
#[derive(Debug)]
pub struct FollowedEvents(ControlClient);

impl OwnerConnection {
    /// Connects to the process that holds the store in `state`; `None` if none listens. Tries for a while if it has too many
    /// clients.
    pub async fn connect(state: &Path) -> Result<Option<Self>, HostError> {
        while_crowded(|| Self::try_connect(state)).await
    }

    async fn try_connect(state: &Path) -> Result<Option<Self>, HostError> {
        let Some(mut client) = ControlClient::connect(state).await? else { return Ok(None) };
        match client.request(&ControlRequest::Ping {}, |_| Ok(())).await {
            Ok(ControlResponse::Pong { pid, submissions, .. }) => {
                Ok(Some(Self { client, state: state.to_owned(), pid, submissions }))
            }
            Ok(_) => Err(unexpected_response().into()),
            Err(AskError::Disconnected) => Ok(None),
            Err(AskError::Rejected(error)) => Err(error.into()),
        }
    }

    /// Connects like [`OwnerConnection::connect`], and waits as long as no process listens.
    pub async fn wait(state: &Path) -> Result<Self, HostError> {
        loop {
            match Self::connect(state).await? {
                Some(owner) => return Ok(owner),
                None => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Submits a task; returns when its run is durable.
    pub async fn submit(&mut self, submission: &RunSubmission) -> Result<SubmittedRun, HandoverError> {
        let json = serde_json::to_vec(submission)
            .map_err(|error| RequestError::internal(format!("the task is no JSON: {error}")))?;
        if json.len() + REQUEST_BYTES <= MAX_LINE_BYTES {
            return self.ask(&ControlRequest::RunsSubmit(Box::new(submission.clone()))).await;
        }
        let file = SubmissionFile::write(&self.state, &json)
            .map_err(|error| RequestError::new(RequestErrorKind::Store, error.to_string()))?;
        drop(json);
        self.ask(&ControlRequest::RunsSubmitFile { name: file.name().to_owned() }).await
    }

    /// Sends a message to a session; returns when it is durable.
    pub async fn send(&mut self, message: &MessageSubmission) -> Result<MessageStatus, HandoverError> {
        let json = serde_json::to_vec(message)
            .map_err(|error| RequestError::internal(format!("the message is no JSON: {error}")))?;
        if json.len() + REQUEST_BYTES <= MAX_LINE_BYTES {
            return self.ask_to_send(&ControlRequest::MessagesSend(Box::new(message.clone()))).await;
        }
        let file = SubmissionFile::write(&self.state, &json)
            .map_err(|error| RequestError::new(RequestErrorKind::Store, error.to_string()))?;
        self.ask_to_send(&ControlRequest::MessagesSendFile { name: file.name().to_owned() }).await
    }

    async fn ask_to_send(&mut self, request: &ControlRequest) -> Result<MessageStatus, HandoverError> {
        let answer = self.client.request(request, |_| Ok(())).await?;
        let ControlResponse::Message(sent) = answer else { return Err(unexpected_response().into()) };
        Ok(sent)
    }

    /// Lets the unfinished run go on that `id` names.
    pub async fn resume(&mut self, id: &str) -> Result<SubmittedRun, HandoverError> {
        self.ask(&ControlRequest::RunsResume { id: id.to_owned() }).await
    }

    /// The session that `id` names.
    pub async fn session_of(&mut self, id: &str) -> Result<SessionId, HandoverError> {
        let request = ControlRequest::SessionsShow { session: id.to_owned(), max: 0 };
        let answer = self.client.request(&request, |_| Ok(())).await?;
        let ControlResponse::Session(detail) = answer else { return Err(unexpected_response().into()) };
        Ok(detail.session.id)
    }

    async fn ask(&mut self, request: &ControlRequest) -> Result<SubmittedRun, HandoverError> {
        let answer = self.client.request(request, |_| Ok(())).await?;
        let ControlResponse::Submitted(submitted) = answer else { return Err(unexpected_response().into()) };
        Ok(*submitted)
    }

    /// Follows a run, beginning with the record `from` of its session. An unfinished run goes on, if it does not yet.
    pub async fn follow(self, run: RunId, from: Seq) -> Result<FollowedEvents, HandoverError> {
        let request = ControlRequest::RunsFollow { run: run.to_string(), from: Some(from), revive: true };
        self.follow_by(&request).await
    }

    /// Follows a run as it is: nothing goes on by it. Without `from`, begins with its first record.
    pub async fn watch_run(self, run: RunId, from: Option<Seq>) -> Result<FollowedEvents, HandoverError> {
        let request = ControlRequest::RunsFollow { run: run.to_string(), from, revive: false };
        self.follow_by(&request).await
    }

    /// Follows a session as it is, beginning with the record `from`.
    pub async fn watch_session(self, session: String, from: Seq) -> Result<FollowedEvents, HandoverError> {
        self.follow_by(&ControlRequest::SessionsFollow { session, from }).await
    }

    /// Follows the records of all sessions behind the place `after`; without it, from now on.
    pub async fn watch_all(self, after: Option<FeedCursor>) -> Result<FollowedEvents, HandoverError> {
        self.follow_by(&ControlRequest::FeedFollow { after }).await
    }

    async fn follow_by(mut self, request: &ControlRequest) -> Result<FollowedEvents, HandoverError> {
        self.client.start(request).await?;
        Ok(FollowedEvents(self.client))
    }

    /// Stops a run because of a signal; returns when it has ended, or after a few seconds.
    pub async fn stop(mut self, run: RunId) -> Result<(), HandoverError> {
        let (run, reason) = (run.to_string(), StopReason::Signal);
        self.client.request(&ControlRequest::Stop { run, tree: false, reason }, |_| Ok(())).await?;
        Ok(())
    }
}

impl FollowedEvents {
    /// The next step. May be cancelled at any time.
    pub async fn next(&mut self) -> Result<FollowedStep, HandoverError> {
        loop {
            if let Some(step) = step(self.0.next_line().await?)? {
                return Ok(step);
            }
        }
    }
}

/// The step of a line; `None` for one that is no step.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others answer other requests")]
fn step(line: ControlResponse) -> Result<Option<FollowedStep>, RequestError> {
    Ok(Some(match line {
        ControlResponse::Followed(FollowedEvent { session, run, seq, content }) => {
            let ids = EventIds { session, run, seq };
            match content {
                FollowedContent::Record { record } => FollowedStep::Record(ids, decode(&record)),
                FollowedContent::Other(body) => FollowedStep::Event(ids, body),
            }
        }
        ControlResponse::Fed(FedRecord { cursor, session, seq, record }) => {
            let decoded = record.and_then(|record| decode(&record));
            let run = decoded.as_ref().ok().and_then(|record| record.body.run());
            FollowedStep::Fed(cursor, EventIds { session, run, seq }, decoded)
        }
        ControlResponse::Note { text } => FollowedStep::Note(text),
        ControlResponse::RunEnded(result) => FollowedStep::Ended(result),
        ControlResponse::RunParked { run } => FollowedStep::Parked(run),
        ControlResponse::Heartbeat {} => return Ok(None),
        _ => return Err(unexpected_response()),
    }))
}

fn decode(record: &RecordJson) -> DecodedRecord {
    record.decode().map(Arc::new).map_err(|error| error.to_string())
}

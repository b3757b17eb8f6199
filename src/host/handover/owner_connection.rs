//! The client's side of a handover: asks the owner of the store to take a run, and follows the run there.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use hermod_actors::{
    RunResult,
    model::{EventBody, Record, RunId, Seq, StopReason},
};

use super::submission_file::SubmissionFile;
use crate::{
    control::{
        AskError, ControlClient, ControlRequest, ControlResponse, FollowedEvent, MAX_LINE_BYTES, OwnerKind,
        RequestError, RequestErrorKind, RunSubmission, SubmittedRun,
    },
    host::{
        error::HostError,
        store_client::{unexpected_response, while_crowded},
    },
};

/// Bytes of a line that the request around a submission may need.
const REQUEST_BYTES: usize = 64;

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

/// The next thing that the owner tells about a followed run.
#[derive(Debug)]
pub enum FollowedStep {
    /// A record of the run's session; `None` if it is of another version of the program.
    Record(Seq, Option<Arc<Record>>),
    /// An event that is no record.
    Event(EventBody),
    /// A line for the user.
    Note(String),
    /// The run has its outcome.
    Ended(Box<RunResult>),
    /// This run waits for a person, and nothing else is in progress.
    Parked(RunId),
}

/// A run that is followed at its owner.
#[derive(Debug)]
pub struct FollowedRun(ControlClient);

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

    /// Lets the unfinished run go on that `id` names.
    pub async fn resume(&mut self, id: &str) -> Result<SubmittedRun, HandoverError> {
        self.ask(&ControlRequest::RunsResume { id: id.to_owned() }).await
    }

    async fn ask(&mut self, request: &ControlRequest) -> Result<SubmittedRun, HandoverError> {
        let answer = self.client.request(request, |_| Ok(())).await?;
        let ControlResponse::Submitted(submitted) = answer else { return Err(unexpected_response().into()) };
        Ok(*submitted)
    }

    /// Follows a run, beginning with the record `from` of its session. An unfinished run goes on, if it does not yet.
    pub async fn follow(mut self, run: RunId, from: Seq) -> Result<FollowedRun, HandoverError> {
        self.client.start(&ControlRequest::RunsFollow { run: run.to_string(), from }).await?;
        Ok(FollowedRun(self.client))
    }

    /// Stops a run because of a signal; returns when it has ended, or after a few seconds.
    pub async fn stop(mut self, run: RunId) -> Result<(), HandoverError> {
        let (run, reason) = (run.to_string(), StopReason::Signal);
        self.client.request(&ControlRequest::Stop { run, tree: false, reason }, |_| Ok(())).await?;
        Ok(())
    }
}

impl FollowedRun {
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
        ControlResponse::Followed(FollowedEvent::Record { seq, record }) => {
            let decoded = record.decode().inspect_err(|error| {
                tracing::warn!(seq, %error, "a record of another version is not shown");
            });
            FollowedStep::Record(seq, decoded.ok().map(Arc::new))
        }
        ControlResponse::Followed(event) => return Ok(event.body().map(FollowedStep::Event)),
        ControlResponse::Note { text } => FollowedStep::Note(text),
        ControlResponse::RunEnded(result) => FollowedStep::Ended(result),
        ControlResponse::RunParked { run } => FollowedStep::Parked(run),
        ControlResponse::Heartbeat {} => return Ok(None),
        _ => return Err(unexpected_response()),
    }))
}

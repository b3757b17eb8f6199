//! The process that owns the store, as the chat and ACP use it: requests that go to the next owner if one ends, and the events
//! of a session over all owners.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hermod_actors::model::{EventBody, RunId, Seq, SessionId};
use tokio::{sync::mpsc, time::sleep};

use super::background::{self, ServiceWait};
use crate::{
    control::{
        ControlClient, ControlRequest, ControlResponse, MessageStatus, MessageSubmission, OwnerKind,
        RequestError, RequestErrorKind, RunSubmission, SubmittedRun,
    },
    host::{
        DecodedRecord, FollowedEvents, FollowedStep, HandoverError, HostError, OwnerConnection,
        unexpected_response,
    },
    view::{ConversationListView, SessionDetailView},
};

/// Most tries in a row while owners come and go, and bounds of the growing pause between two.
const MAX_TRIES: u32 = 60;
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// How long an owner that has gone is expected back: a service that is restarted finds the store free.
const RETURN_TIME: Duration = Duration::from_secs(5);
const RETURN_POLL: Duration = Duration::from_millis(100);

/// Conversations of a list.
const MAX_CONVERSATIONS: usize = 1_000;

/// Steps of a session that wait to be shown.
const MAX_WAITING_STEPS: usize = 16;

/// The owner of the store in a state directory. Without one a service is started in the background.
#[derive(Debug)]
pub(crate) struct SharedOwner {
    state: PathBuf,
    /// Whether an owner of this kind will do.
    accepts: fn(OwnerKind) -> bool,
    /// Learns what is waited for.
    on_wait: fn(ServiceWait),
    /// When an owner has gone.
    lost_at: Mutex<Option<tokio::time::Instant>>,
}

/// Tries in a row without success.
#[derive(Debug)]
struct Tries {
    count: u32,
    pause: Duration,
}

impl Tries {
    const fn new() -> Self {
        Self { count: 0, pause: MIN_PAUSE }
    }

    /// Waits before the next try, or says that there were too many.
    async fn wait(&mut self) -> Result<(), HostError> {
        self.count += 1;
        if self.count > MAX_TRIES {
            let text = "the processes that hold the store come and go too fast; try again";
            return Err(RequestError::new(RequestErrorKind::Busy, text).into());
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        Ok(())
    }
}

impl SharedOwner {
    /// The owner of the store in `state`, if `accepts` takes it.
    pub(crate) const fn new(
        state: PathBuf,
        accepts: fn(OwnerKind) -> bool,
        on_wait: fn(ServiceWait),
    ) -> Self {
        Self { state, accepts, on_wait, lost_at: Mutex::new(None) }
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Connects to the owner, whichever process that is.
    pub(crate) async fn connect(&self) -> Result<OwnerConnection, HostError> {
        self.connect_telling(self.on_wait).await
    }

    /// The same; `on_wait` learns what is waited for.
    pub(crate) async fn connect_telling(
        &self,
        on_wait: impl FnMut(ServiceWait),
    ) -> Result<OwnerConnection, HostError> {
        loop {
            if let Some(owner) = OwnerConnection::connect(&self.state).await?
                && owner.submissions.is_some_and(self.accepts)
            {
                return Ok(owner);
            }
            if !self.is_expected_back() {
                break;
            }
            sleep(RETURN_POLL).await;
        }
        let connected = background::connect(&self.state, on_wait).await;
        // A usage error would be one of the request.
        connected.map_err(|error| RequestError::internal(error.to_string()).into())
    }

    fn is_expected_back(&self) -> bool {
        let lost_at = *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner);
        lost_at.is_some_and(|lost_at| lost_at.elapsed() < RETURN_TIME)
    }

    /// The owner has ended while it was asked, or while it was followed.
    fn on_lost(&self) {
        *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(tokio::time::Instant::now());
    }

    /// Waits before a request is repeated to the next owner, or returns why it is not.
    async fn recover(&self, error: HandoverError, tries: &mut Tries) -> Result<(), HostError> {
        match error {
            HandoverError::Failed(error) => return Err(error),
            HandoverError::Gone => self.on_lost(),
            HandoverError::Crowded(_) => {}
        }
        tries.wait().await
    }

    /// Repeats `ask` with the next owner while owners end before they answer. A repeat must be harmless.
    async fn repeat<T, F: Future<Output = Result<T, HandoverError>>>(
        &self,
        mut ask: impl FnMut(OwnerConnection) -> F,
    ) -> Result<T, HostError> {
        let mut tries = Tries::new();
        loop {
            match ask(self.connect().await?).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.recover(error, &mut tries).await?,
            }
        }
    }

    /// Sends a request whose answer has one line. A repeat must be harmless.
    pub(crate) async fn ask(&self, request: &ControlRequest) -> Result<ControlResponse, HostError> {
        self.read(request, |_| {}).await
    }

    /// Sends a request whose answer has one line, once.
    pub(crate) async fn ask_once(&self, request: &ControlRequest) -> Result<ControlResponse, HandoverError> {
        self.read_once(request, &mut |_| {}).await
    }

    /// Sends a request, and passes each line but the last to `each`; after the end of an owner from the first line on.
    pub(crate) async fn read(
        &self,
        request: &ControlRequest,
        mut each: impl FnMut(ControlResponse),
    ) -> Result<ControlResponse, HostError> {
        let mut tries = Tries::new();
        loop {
            match self.read_once(request, &mut each).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.recover(error, &mut tries).await?,
            }
        }
    }

    async fn read_once(
        &self,
        request: &ControlRequest,
        each: &mut impl FnMut(ControlResponse),
    ) -> Result<ControlResponse, HandoverError> {
        // It starts an owner if there is none.
        drop(self.connect().await?);
        let Some(mut client) = ControlClient::connect(&self.state).await? else {
            return Err(HandoverError::Gone);
        };
        let pass = |line| {
            each(line);
            Ok(())
        };
        Ok(client.request(request, pass).await?)
    }

    /// Sends a message; its key makes a repeat harmless.
    pub(crate) async fn send(&self, message: &MessageSubmission) -> Result<MessageStatus, HostError> {
        self.repeat(|mut owner| async move { owner.send(message).await }).await
    }

    /// The session that a name stands for: its id or key, the id of one of its runs, or `last`.
    pub(crate) async fn session_of(&self, name: &str) -> Result<SessionId, HostError> {
        self.repeat(|mut owner| async move { owner.session_of(name).await }).await
    }

    /// The conversations with the latest runs, without those of subagents.
    pub(crate) async fn conversations(&self) -> Result<ConversationListView, HostError> {
        let request = ControlRequest::ConversationsList { max: MAX_CONVERSATIONS, check: false };
        let ControlResponse::Conversations(list) = self.ask(&request).await? else {
            return Err(unexpected_response().into());
        };
        Ok(list)
    }

    /// Submits a task; its key makes a repeat harmless.
    pub(crate) async fn submit(&self, task: &RunSubmission) -> Result<SubmittedRun, HostError> {
        self.repeat(|mut owner| async move { owner.submit(task).await }).await
    }

    /// Lets the run go on if its owner does not do so by itself: a service does.
    pub(crate) async fn revive(&self, run: RunId) -> Result<(), HostError> {
        self.repeat(|mut owner| async move {
            if owner.submissions.is_none_or(OwnerKind::is_service) {
                return Ok(());
            }
            owner.resume(&run.to_string()).await.map(drop)
        })
        .await
    }

    /// The session with exactly this id or key, and its newest run; `None` if there is none.
    pub(crate) async fn session(&self, name: &str) -> Result<Option<SessionDetailView>, HostError> {
        let request = ControlRequest::SessionsShow { session: name.to_owned(), max: 1 };
        match self.ask(&request).await {
            // The name may be that of a run, or `last`.
            Ok(ControlResponse::Session(detail)) => {
                let is_named = detail.session.key == name || detail.session.id.to_string() == name;
                Ok(is_named.then_some(detail))
            }
            Ok(_) => Err(unexpected_response().into()),
            Err(HostError::Request(error)) if error.kind == RequestErrorKind::Usage => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of the last record of a run, by now.
    pub(crate) async fn last_record(&self, run: RunId) -> Result<Seq, HostError> {
        let mut last = 0;
        let request = ControlRequest::RunsRecords { run: run.to_string(), from: None };
        self.read(&request, |line| {
            if let ControlResponse::RunRecord { seq, .. } = line {
                last = last.max(seq);
            }
        })
        .await?;
        Ok(last)
    }
}

/// The events of a session over all owners.
#[derive(Debug)]
struct Follower {
    owner: Arc<SharedOwner>,
    session: String,
    next: Seq,
    events: Option<FollowedEvents>,
    tries: Tries,
}

/// A step, or why there are no more.
pub(crate) type SessionStepResult = Result<SessionStep, HostError>;

/// The next thing that happened in a session.
#[derive(Debug)]
pub(crate) enum SessionStep {
    /// A record: each once and in order.
    Record(Seq, DecodedRecord),
    /// An event that is no record.
    Event(EventBody),
    /// A line for the user about the disk.
    Note(String),
    /// A connection was made, to the process with this id. After an earlier one, deltas may repeat.
    Joined(u32),
    /// The process that was followed has gone; another one is waited for.
    Lost,
}

/// The steps of a session from the record `next` on, read by a task of its own until the receiver is dropped. An error is the
/// last step.
pub(crate) fn follow(
    owner: Arc<SharedOwner>,
    session: String,
    next: Seq,
) -> mpsc::Receiver<SessionStepResult> {
    let (sender, steps) = mpsc::channel(MAX_WAITING_STEPS);
    tokio::spawn(async move {
        let mut follower = Follower { owner, session, next, events: None, tries: Tries::new() };
        let following = async {
            loop {
                let step = follower.next().await;
                let is_last = step.is_err();
                if sender.send(step).await.is_err() || is_last {
                    return;
                }
            }
        };
        tokio::select! {
            () = following => {}
            () = sender.closed() => {}
        }
    });
    steps
}

impl Follower {
    async fn next(&mut self) -> Result<SessionStep, HostError> {
        loop {
            let Some(events) = &mut self.events else {
                match self.join().await {
                    Ok((pid, events)) => {
                        self.events = Some(events);
                        return Ok(SessionStep::Joined(pid));
                    }
                    Err(error) => self.owner.recover(error, &mut self.tries).await?,
                }
                continue;
            };
            match events.next().await {
                Ok(FollowedStep::Record(ids, record)) => {
                    (self.next, self.tries) = (ids.seq + 1, Tries::new());
                    return Ok(SessionStep::Record(ids.seq, record));
                }
                Ok(FollowedStep::Event(_, event)) => return Ok(SessionStep::Event(event)),
                Ok(FollowedStep::Note(text)) => return Ok(SessionStep::Note(text)),
                // These are of other requests.
                Ok(FollowedStep::Fed(..) | FollowedStep::Ended(_) | FollowedStep::Parked(_)) => {}
                Err(error) => {
                    self.events = None;
                    self.owner.recover(error, &mut self.tries).await?;
                    return Ok(SessionStep::Lost);
                }
            }
        }
    }

    async fn join(&self) -> Result<(u32, FollowedEvents), HandoverError> {
        let owner = self.owner.connect().await?;
        let pid = owner.pid;
        Ok((pid, owner.watch_session(self.session.clone(), self.next).await?))
    }
}

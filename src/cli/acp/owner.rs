//! The process that owns the store, as sessions of ACP use it: requests that go to the next owner if one ends, and the events
//! of a session over all owners.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hermod_actors::model::{EventBody, RunId, Seq};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use crate::{
    cli::{background, print_note},
    control::{
        ControlClient, ControlRequest, ControlResponse, RequestError, RequestErrorKind, RunSubmission,
        SubmittedRun,
    },
    host::{
        DecodedRecord, FollowedEvents, FollowedStep, HandoverError, HostError, OwnerConnection,
        unexpected_response,
    },
    view::SessionDetailView,
};

/// Most tries in a row while owners come and go, and bounds of the growing pause between two.
const MAX_TRIES: u32 = 60;
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// How long an owner that has gone is expected back: a service that is restarted finds the store free.
const RETURN_TIME: Duration = Duration::from_secs(5);

/// Steps of a session that wait to be shown.
const MAX_WAITING_STEPS: usize = 16;

/// The owner of the store in a state directory. Without one a service is started in the background.
#[derive(Debug)]
pub(super) struct Owner {
    state: PathBuf,
    /// When an owner has gone.
    lost_at: Mutex<Option<Instant>>,
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

impl Owner {
    /// The owner of the store in `state`.
    pub(super) const fn new(state: PathBuf) -> Self {
        Self { state, lost_at: Mutex::new(None) }
    }

    /// Connects to the owner, whichever process that is.
    pub(super) async fn connect(&self) -> Result<OwnerConnection, HostError> {
        loop {
            if let Some(owner) = OwnerConnection::connect(&self.state).await?
                && owner.submissions.is_some()
            {
                return Ok(owner);
            }
            if !self.is_expected_back() {
                break;
            }
            sleep(MAX_PAUSE).await;
        }
        let connected = background::connect(&self.state, &[], |wait| print_note(wait.to_string())).await;
        // A usage error would be one of the request.
        connected.map_err(|error| RequestError::internal(error.to_string()).into())
    }

    fn is_expected_back(&self) -> bool {
        let lost_at = *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner);
        lost_at.is_some_and(|lost_at| lost_at.elapsed() < RETURN_TIME)
    }

    /// The owner has ended while it was asked, or while it was followed.
    fn on_lost(&self) {
        *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
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

    /// Sends a request whose answer has one line.
    pub(super) async fn ask(&self, request: &ControlRequest) -> Result<ControlResponse, HostError> {
        self.read(request, |_| {}).await
    }

    /// Sends a request, and passes each line but the last to `each`; after the end of an owner from the first line on.
    pub(super) async fn read(
        &self,
        request: &ControlRequest,
        mut each: impl FnMut(ControlResponse),
    ) -> Result<ControlResponse, HostError> {
        let mut tries = Tries::new();
        loop {
            // It starts an owner if there is none.
            drop(self.connect().await?);
            let answer = match ControlClient::connect(&self.state).await {
                Ok(Some(mut client)) => {
                    let pass = |line| {
                        each(line);
                        Ok(())
                    };
                    client.request(request, pass).await.map_err(HandoverError::from)
                }
                Ok(None) => Err(HandoverError::Gone),
                Err(error) => Err(error.into()),
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => self.recover(error, &mut tries).await?,
            }
        }
    }

    /// Submits a task; its key makes a repeat harmless.
    pub(super) async fn submit(&self, task: &RunSubmission) -> Result<SubmittedRun, HostError> {
        self.repeat(|mut owner| async move { owner.submit(task).await }).await
    }

    /// Lets the run go on if its owner does not do so by itself: a service does.
    pub(super) async fn revive(&self, run: RunId) -> Result<(), HostError> {
        self.repeat(|mut owner| async move {
            if owner.submissions.is_none_or(|kind| kind.is_service()) {
                return Ok(());
            }
            owner.resume(&run.to_string()).await.map(drop)
        })
        .await
    }

    /// The session with exactly this id or key, and its newest run; `None` if there is none.
    pub(super) async fn session(&self, name: &str) -> Result<Option<SessionDetailView>, HostError> {
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
    pub(super) async fn last_record(&self, run: RunId) -> Result<Seq, HostError> {
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
    owner: Arc<Owner>,
    session: String,
    next: Seq,
    events: Option<FollowedEvents>,
    has_joined: bool,
    tries: Tries,
}

/// A step, or why there are no more.
pub(super) type SessionStepResult = Result<SessionStep, HostError>;

/// The next thing that happened in a session.
#[derive(Debug)]
pub(super) enum SessionStep {
    /// A record: each once and in order.
    Record(Seq, DecodedRecord),
    /// An event that is no record.
    Event(EventBody),
    /// Another connection was made: deltas may repeat.
    Rejoined,
}

/// The steps of a session from the record `next` on, read by a task of its own until the receiver is dropped. An error is the
/// last step.
pub(super) fn follow(owner: Arc<Owner>, session: String, next: Seq) -> mpsc::Receiver<SessionStepResult> {
    let (sender, steps) = mpsc::channel(MAX_WAITING_STEPS);
    tokio::spawn(async move {
        let mut follower =
            Follower { owner, session, next, events: None, has_joined: false, tries: Tries::new() };
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
                    Ok(events) => self.events = Some(events),
                    Err(error) => {
                        self.owner.recover(error, &mut self.tries).await?;
                        continue;
                    }
                }
                if std::mem::replace(&mut self.has_joined, true) {
                    return Ok(SessionStep::Rejoined);
                }
                continue;
            };
            match events.next().await {
                Ok(FollowedStep::Record(ids, record)) => {
                    (self.next, self.tries) = (ids.seq + 1, Tries::new());
                    return Ok(SessionStep::Record(ids.seq, record));
                }
                Ok(FollowedStep::Event(_, event)) => return Ok(SessionStep::Event(event)),
                // These are of other requests.
                Ok(
                    FollowedStep::Fed(..)
                    | FollowedStep::Note(_)
                    | FollowedStep::Ended(_)
                    | FollowedStep::Parked(_),
                ) => {}
                Err(error) => {
                    self.events = None;
                    self.owner.recover(error, &mut self.tries).await?;
                }
            }
        }
    }

    async fn join(&self) -> Result<FollowedEvents, HandoverError> {
        self.owner.connect().await?.watch_session(self.session.clone(), self.next).await
    }
}

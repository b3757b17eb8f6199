//! Client of the store: sends requests to the owner, and opens the store itself only if there is no owner.
//! `client_commands.rs` has the requests that change runs. Also opens the store for a process that becomes its owner.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hermod_actors::ActiveDeadline;
use tokio::{sync::mpsc, time::sleep};

use super::{
    error::{HostError, StartError},
    folders,
};
use crate::{
    control::{
        AskError, ControlClient, ControlRequest, ControlResponse, PAGE_RECORDS, RequestError,
        RequestErrorKind, RequestHandler, StoreReader,
    },
    discovery::Variables,
    maintenance::StateDirMaintenance,
    store::redb::{Durability, OpenError, RedbJournal},
    view::{EventView, RunDetailView},
};

/// Maximum number of tries, `RETRY_DELAY` apart, while a process owns the store but does not listen: it is starting or
/// ending.
pub(super) const MAX_TRIES: usize = 100;
/// Pause between two tries to reach the owner of the store, or to open the store.
pub const RETRY_DELAY: Duration = Duration::from_millis(20);
/// How long a request is repeated while the owner has too many clients, and the pause between two tries.
const CROWD_PATIENCE: Duration = Duration::from_secs(30);
const CROWD_DELAY: Duration = Duration::from_millis(200);
/// Maximum number of responses queued between the request handler and the caller.
const MAX_QUEUED_RESPONSES: usize = 16;

/// Client of the store in a state directory.
#[derive(Debug)]
pub struct StoreClient {
    state: PathBuf,
}

/// The source of answers.
#[derive(Debug)]
pub enum StoreAccess {
    /// The process that owns the store.
    Owner(Box<ControlClient>),
    /// There is no owner: this process has opened the store.
    Store(Arc<RedbJournal>),
}

/// What became of a request to the owner.
#[derive(Debug)]
pub enum OwnerReply {
    /// The owner has answered.
    Response(ControlResponse),
    /// The owner has ended; whether it carried the request out is unknown.
    Disconnected,
    /// There is no owner: this process has opened the store.
    NoOwner(Arc<RedbJournal>),
}

impl StoreClient {
    /// A client for the store in the configured state directory, which is created if it is missing.
    pub fn new(variables: &Variables) -> Result<Self, HostError> {
        Ok(Self { state: folders::configured_state_dir(variables)? })
    }

    /// A client for the store in this state directory.
    pub fn of_state(state: PathBuf) -> Self {
        Self { state }
    }

    /// The state directory.
    pub fn state(&self) -> &PathBuf {
        &self.state
    }

    /// Sends a request that has a single response.
    pub async fn request(&self, request: &ControlRequest) -> Result<ControlResponse, HostError> {
        for _ in 0..MAX_TRIES {
            match self.ask_owner(request).await? {
                OwnerReply::Response(response) => return Ok(response),
                OwnerReply::Disconnected => sleep(RETRY_DELAY).await,
                OwnerReply::NoOwner(journal) => {
                    return self.request_from_store(journal, request.clone()).await;
                }
            }
        }
        Err(self.unreachable_owner())
    }

    /// Sends a request to the owner, once. If it has too many clients, it has not begun with the request, and is asked
    /// again for a while.
    pub async fn ask_owner(&self, request: &ControlRequest) -> Result<OwnerReply, HostError> {
        while_crowded(|| self.try_owner(request)).await
    }

    async fn try_owner(&self, request: &ControlRequest) -> Result<OwnerReply, HostError> {
        let mut client = match self.access().await? {
            StoreAccess::Owner(client) => client,
            StoreAccess::Store(journal) => return Ok(OwnerReply::NoOwner(journal)),
        };
        match client.request(request, |_| Ok(())).await {
            Ok(response) => Ok(OwnerReply::Response(response)),
            Err(AskError::Disconnected) => Ok(OwnerReply::Disconnected),
            Err(AskError::Rejected(error)) => Err(error.into()),
        }
    }

    /// The details of the run that `run` names.
    pub async fn run_detail(&self, run: String) -> Result<RunDetailView, HostError> {
        let ControlResponse::Run(detail) = self.request(&ControlRequest::RunsShow { run }).await? else {
            return Err(unexpected_response().into());
        };
        Ok(*detail)
    }

    /// Passes the records of a session to `each`, and continues at the same record if the owner ends meanwhile.
    pub async fn records<E: From<HostError> + ToString>(
        &self,
        session: String,
        mut from: u64,
        mut each: impl FnMut(EventView) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut failure, mut disconnects) = (None, 0);
        loop {
            let start = from;
            let mut take_event = |event: EventView| {
                from = event.seq + 1;
                each(event)
            };
            match self.access().await? {
                StoreAccess::Owner(mut client) => {
                    let request = ControlRequest::Journal { session: session.clone(), from: start };
                    let take_response = |answer| {
                        let ControlResponse::Record(event) = answer else { return Ok(()) };
                        take_event(event).map_err(|error| {
                            let rejection = RequestError::usage(error.to_string());
                            failure = Some(error);
                            rejection
                        })
                    };
                    match client.request(&request, take_response).await {
                        Ok(_) => return Ok(()),
                        Err(AskError::Disconnected) if disconnects < MAX_TRIES => {
                            disconnects += 1;
                            sleep(RETRY_DELAY).await;
                        }
                        Err(AskError::Disconnected) => return Err(self.unreachable_owner().into()),
                        Err(AskError::Rejected(error)) => {
                            return Err(failure.take().unwrap_or_else(|| HostError::from(error).into()));
                        }
                    }
                }
                StoreAccess::Store(journal) => {
                    let (page, damage) = page(journal, &session, start).await?;
                    let is_last = page.len() < PAGE_RECORDS;
                    page.into_iter().try_for_each(take_event)?;
                    if let Some(damage) = damage {
                        return Err(HostError::from(damage).into());
                    }
                    if is_last {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Answers a request with a single response from the store opened here, and closes the store.
    pub async fn request_from_store(
        &self,
        journal: Arc<RedbJournal>,
        request: ControlRequest,
    ) -> Result<ControlResponse, HostError> {
        let maintenance = Arc::new(StateDirMaintenance::new(&self.state, &journal));
        let handler = RequestHandler::new(StoreReader::new(journal), maintenance);
        let (sender, mut answers) = mpsc::channel(MAX_QUEUED_RESPONSES);
        let answering = async move { handler.answer(request, &sender).await };
        let last = async move {
            let mut last = None;
            while let Some(answer) = answers.recv().await {
                last = Some(answer);
            }
            last
        };
        match tokio::join!(answering, last) {
            ((), Some(ControlResponse::Refused(error))) => Err(error.into()),
            ((), last) => last.ok_or_else(|| unexpected_response().into()),
        }
    }

    /// The owner of the store, if there is one.
    pub async fn owner(&self) -> Result<Option<ControlClient>, HostError> {
        Ok(ControlClient::connect(&self.state).await?)
    }

    /// Connects to the owner, or opens the store if there is none.
    pub async fn access(&self) -> Result<StoreAccess, HostError> {
        let mut busy = None;
        for _ in 0..MAX_TRIES {
            if let Some(client) = ControlClient::connect(&self.state).await? {
                return Ok(StoreAccess::Owner(Box::new(client)));
            }
            match folders::open(&self.state, Durability::Strict) {
                Ok(journal) => return Ok(StoreAccess::Store(journal)),
                Err(error @ StartError::Store(OpenError::Busy { .. })) => busy = Some(error),
                Err(error) => return Err(error.into()),
            }
            sleep(RETRY_DELAY).await;
        }
        Err(busy.map_or_else(|| self.unreachable_owner(), HostError::from))
    }

    pub(super) fn unreachable_owner(&self) -> HostError {
        let text = format!(
            "the processes that hold the store in {} come and go too fast to be asked; try again",
            self.state.display()
        );
        RequestError::new(RequestErrorKind::Busy, text).into()
    }
}

/// Repeats `ask` for a while, as long as the owner has too many clients.
pub(super) async fn while_crowded<T, F: Future<Output = Result<T, HostError>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T, HostError> {
    let mut patience = ActiveDeadline::after(CROWD_PATIENCE);
    loop {
        match ask().await {
            Err(HostError::Request(error)) if error.kind == RequestErrorKind::Crowded => {
                if patience.bound(sleep(CROWD_DELAY)).await.is_none() {
                    return Err(error.into());
                }
            }
            answered => return answered,
        }
    }
}

/// Opens the store for a process that becomes its owner. Waits for processes that only read the store for a moment; a
/// listening owner is an error that names it.
pub async fn open_as_owner(state: &Path, durability: Durability) -> Result<Arc<RedbJournal>, HostError> {
    let mut tries = 1..MAX_TRIES;
    loop {
        match folders::open(state, durability) {
            Err(error @ StartError::Store(OpenError::Busy { .. })) => {
                if tries.next().is_none() || ControlClient::connect(state).await?.is_some() {
                    return Err(error.into());
                }
                sleep(RETRY_DELAY).await;
            }
            opened => return opened.map_err(HostError::from),
        }
    }
}

/// A page of records from the store opened here. The store is closed before the records are printed, since printing
/// may take long.
async fn page(
    journal: Arc<RedbJournal>,
    session: &str,
    from: u64,
) -> Result<(Vec<EventView>, Option<RequestError>), HostError> {
    let reader = StoreReader::new(journal);
    let session = reader.session(session).await?.id;
    Ok(reader.events(session, from).await?)
}

/// The owner's response does not belong to the request.
pub fn unexpected_response() -> RequestError {
    RequestError::internal("another question was answered; is the other process of another version?")
}

//! Asks whoever holds the store, and opens it only when nobody answers.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::mpsc, time::sleep};

use super::exit::{Exit, Failure};
use crate::{
    care::Upkeep,
    control::{Answer, Client, Desk, Fault, Lost, PAGE, Reader, Request, shown},
    daemon::{self, StartError},
    environment::Variables,
    store::redb::{Durability, OpenError, RedbJournal},
};

/// A process that holds the store and does not listen is about to begin or to end: it is asked so often, after such a
/// pause each.
const TRIES: usize = 100;
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
/// Records on their way from the store to standard output.
const BUFFER: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Inquiry {
    state: PathBuf,
}

/// Who can answer.
pub(crate) enum Reached {
    /// The process that holds the store.
    Holder(Box<Client>),
    /// Nobody else: the store is open here.
    Store(Arc<RedbJournal>),
}

impl Inquiry {
    /// Asks about the store in the state directory.
    pub(crate) fn new(variables: &Variables) -> Result<Self, Failure> {
        let state = daemon::make_state(&daemon::state_dir(variables)?)?;
        Ok(Self { state })
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &PathBuf {
        &self.state
    }

    /// Asks a question that has one answer.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Answer, Failure> {
        for _ in 0..TRIES {
            match self.reach().await? {
                Reached::Holder(mut client) => match client.ask(request, |_| Ok(())).await {
                    Ok(answer) => return Ok(answer),
                    Err(Lost::Gone) => sleep(PAUSE).await,
                    Err(Lost::Fault(fault)) => return Err(fault.into()),
                },
                Reached::Store(journal) => return self.look(journal, request.clone()).await,
            }
        }
        Err(self.elusive())
    }

    /// Asks for the records of a session, and goes on where it was if the one who tells them ends.
    pub(crate) async fn records(
        &self,
        session: String,
        mut from: u64,
        mut each: impl FnMut(Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut failed, mut gone) = (None, 0);
        loop {
            let begin = from;
            let mut tell = |record: Value| {
                from = record["seq"].as_u64().map_or(from, |seq| seq + 1);
                each(record)
            };
            match self.reach().await? {
                Reached::Holder(mut client) => {
                    let request = Request::Journal { session: session.clone(), from: begin };
                    let tell = |answer| {
                        let Answer::Record(record) = answer else { return Ok(()) };
                        tell(record).map_err(|failure| {
                            let fault = Fault::usage(failure.text.clone());
                            failed = Some(failure);
                            fault
                        })
                    };
                    match client.ask(&request, tell).await {
                        Ok(_) => return Ok(()),
                        Err(Lost::Gone) if gone < TRIES => {
                            gone += 1;
                            sleep(PAUSE).await;
                        }
                        Err(Lost::Gone) => return Err(self.elusive()),
                        Err(Lost::Fault(fault)) => return Err(failed.take().unwrap_or_else(|| fault.into())),
                    }
                }
                Reached::Store(journal) => {
                    let (page, damage) = page(journal, &session, begin).await?;
                    let is_last = page.len() < PAGE;
                    page.into_iter().try_for_each(tell)?;
                    if let Some(damage) = damage {
                        return Err(damage.into());
                    }
                    if is_last {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Asks the store that is open here, which is closed then, a question that has one answer.
    pub(crate) async fn look(&self, journal: Arc<RedbJournal>, request: Request) -> Result<Answer, Failure> {
        alone((&self.state, journal), request, |_| Ok(())).await
    }

    /// The process that runs something, if there is one.
    pub(crate) async fn holder(&self) -> Result<Option<Client>, Failure> {
        Ok(Client::connect(&self.state).await?)
    }

    /// Finds who can answer.
    pub(crate) async fn reach(&self) -> Result<Reached, Failure> {
        let mut busy = None;
        for _ in 0..TRIES {
            if let Some(client) = Client::connect(&self.state).await? {
                return Ok(Reached::Holder(Box::new(client)));
            }
            match daemon::open(&self.state, Durability::Strict) {
                Ok(journal) => return Ok(Reached::Store(journal)),
                Err(error @ StartError::Store(OpenError::Busy { .. })) => busy = Some(error),
                Err(error) => return Err(error.into()),
            }
            sleep(PAUSE).await;
        }
        Err(busy.map_or_else(|| self.elusive(), Failure::from))
    }

    fn elusive(&self) -> Failure {
        let text = format!(
            "the processes that hold the store in {} come and go too fast to be asked; try again",
            self.state.display()
        );
        Failure { exit: Exit::Busy, text }
    }
}

/// Opens the store for a process that is to hold it. One that only looks into it has it for an instant, and is waited
/// for; one that listens holds it, and is named.
pub(crate) async fn open(state: &Path, durability: Durability) -> Result<Arc<RedbJournal>, Failure> {
    let mut tries = 1..TRIES;
    loop {
        match daemon::open(state, durability) {
            Err(error @ StartError::Store(OpenError::Busy { .. })) => {
                if tries.next().is_none() || Client::connect(state).await?.is_some() {
                    return Err(error.into());
                }
                sleep(PAUSE).await;
            }
            opened => return opened.map_err(Failure::from),
        }
    }
}

/// Some records, from the store that is open here; it is closed before anybody is told them, for that may take long.
async fn page(
    journal: Arc<RedbJournal>,
    session: &str,
    from: u64,
) -> Result<(Vec<Value>, Option<Fault>), Failure> {
    let reader = Reader::new(journal);
    let session = reader.session(session).await?.id;
    let (page, damage) = reader.readable_page(session, from, PAGE).await?;
    Ok((page.iter().map(|(seq, record)| shown(*seq, record)).collect::<Result<_, _>>()?, damage))
}

/// Answers from the store that is open here.
async fn alone(
    (state, journal): (&Path, Arc<RedbJournal>),
    request: Request,
    mut each: impl FnMut(Answer) -> Result<(), Fault>,
) -> Result<Answer, Failure> {
    let upkeep = Arc::new(Upkeep::new(state, &journal));
    let desk = Desk::alone(Reader::new(journal)).cared_for_by(upkeep);
    let (sender, mut answers) = mpsc::channel(BUFFER);
    let asked = async move { desk.answer(request, &sender).await };
    let told = async move {
        while let Some(answer) = answers.recv().await {
            if let Answer::Refused(fault) = answer {
                return Err(fault);
            }
            if answer.is_last() {
                return Ok(answer);
            }
            each(answer)?;
        }
        Err(other_answer())
    };
    let ((), told) = tokio::join!(asked, told);
    told.map_err(Failure::from)
}

/// An answer to another question.
pub(crate) fn other_answer() -> Fault {
    Fault::new(
        crate::control::FaultKind::Internal,
        "another question was answered; is the other process of another version?",
    )
}

//! Persistence: the one writer. It batches what all sessions append, and vouches for what is on disk.
//!
//! Architecture invariant: `Durable::vouch` is called here and nowhere else, on acknowledgement and on replay; what vouches
//! earlier is a wrong twin, and not in the product.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{FutureExt, future::BoxFuture};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::{
    model::{Body, Cause, Durable, NoRoom, Record, RunEnded, RunRow, Seq, SessionId, Timestamp},
    port::{Clock, Journal, JournalError, Opened, Read, ReadError, Refusal, Rows, Write, Written},
};

/// A batch is cut here, so that no commit makes the next one wait for long.
const BATCH_WRITES: usize = 32;
/// With more than this waiting, as when thousands of runs are revived, everybody waits for long anyhow, and fewer commits are
/// all that helps.
const BACKLOG: usize = 1_024;
/// Where a batch is cut then.
const BACKLOG_WRITES: usize = 256;
/// Likewise, in bytes of records and of what goes into inboxes.
const BATCH_BYTES: usize = 1 << 20;
/// Records read at once on replay.
const PAGE: usize = 1_000;
/// Pages that are read while one is folded: to read one takes twice as long.
const AHEAD: usize = 2;

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Stored {
    /// The append is on disk.
    Appended(Vec<Durable<Arc<Record>>>),
    /// The session is taken over.
    Opened(Opened),
    /// Whether the session is let go; if not, something waits in its inbox.
    Closed(bool),
    /// The item is in the inbox.
    Delivered,
    /// Nothing was written.
    Refused(Refusal),
}

/// Where the answer goes. Called from the task that commits, so it only hands on.
pub(crate) type Reply = Box<dyn FnOnce(Result<Stored, JournalError>) + Send>;

/// The messages of [`Persistence`].
pub(crate) enum PersistenceMsg {
    /// Writes, and answers when it is durable or refused.
    Write(Write, Reply),
    /// What this session has waiting goes next: somebody waits for what comes after it.
    Hurry(SessionId),
    /// Its own.
    Inner(Failed),
}

/// What the committing task says: the store takes no writes any more.
#[derive(Debug)]
pub(crate) struct Failed(JournalError);

impl fmt::Debug for PersistenceMsg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(write, _) => f.debug_tuple("Write").field(write).finish(),
            Self::Hurry(session) => f.debug_tuple("Hurry").field(session).finish(),
            Self::Inner(inner) => f.debug_tuple("Inner").field(inner).finish(),
        }
    }
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Persistence;

/// Its state.
pub(crate) struct State {
    journal: Arc<dyn Journal>,
    queue: Arc<Mutex<Queue>>,
    writing: Arc<Writing>,
}

/// Since when a commit is under way. It has no deadline: it is answered, or the process ends; so a disk that does not
/// answer has to be seen here.
#[derive(Debug)]
pub(crate) struct Writing {
    clock: Arc<dyn Clock>,
    journal: Arc<dyn Journal>,
    since: Mutex<Option<Timestamp>>,
}

impl Writing {
    /// Nothing is under way.
    pub(crate) fn new(clock: Arc<dyn Clock>, journal: Arc<dyn Journal>) -> Self {
        Self { clock, journal, since: Mutex::default() }
    }

    /// What there is no room for on the disk; `None` if nothing waits for that.
    pub(crate) fn no_room(&self) -> Option<NoRoom> {
        self.journal.no_room()
    }

    /// When the commit began that is under way; `None` if none is.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begins(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock.at());
    }

    fn ended(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What waits for the disk; shared with the task that commits, so that the disk does not wait for a message.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Write, Reply)>,
    /// Whether there is a task that commits. It goes on as long as something waits.
    committing: bool,
}

impl Actor for Persistence {
    type Msg = PersistenceMsg;
    type State = State;
    type Arguments = (Arc<dyn Journal>, Arc<Writing>);

    async fn pre_start(
        &self,
        _me: ActorRef<PersistenceMsg>,
        (journal, writing): (Arc<dyn Journal>, Arc<Writing>),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { journal, queue: Arc::default(), writing })
    }

    async fn handle(
        &self,
        me: ActorRef<PersistenceMsg>,
        message: PersistenceMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        #[cfg(feature = "testkit")]
        let message = if is_vouched_early(&message) { vouched_early(message) } else { message };
        let batch = {
            let mut queue = lock(&state.queue);
            match message {
                PersistenceMsg::Write(write, reply) if is_awaited(&write) => {
                    queue.waiting.push_front((write, reply));
                }
                PersistenceMsg::Write(write, reply) => queue.waiting.push_back((write, reply)),
                PersistenceMsg::Hurry(session) => queue.hurry(session),
                // Nothing can be promised any more: the supervisor ends the runtime.
                PersistenceMsg::Inner(Failed(error)) => return Err(Box::new(error)),
            }
            if queue.committing { None } else { queue.cut() }
        };
        if let Some(batch) = batch {
            let (journal, queue) = (Arc::clone(&state.journal), Arc::clone(&state.queue));
            tokio::spawn(commit((journal, Arc::clone(&state.writing)), queue, batch, me));
        }
        Ok(())
    }
}

impl Drop for State {
    /// Who is left waiting is told by the end of the runtime.
    fn drop(&mut self) {
        let left = std::mem::take(&mut lock(&self.queue).waiting);
        drop(left);
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

type Batch = (Vec<Write>, Vec<Reply>);

impl Queue {
    /// Puts the append of a session in front; it has at most one, so nothing of it is overtaken.
    fn hurry(&mut self, session: SessionId) {
        let of =
            |(write, _): &(Write, Reply)| matches!(write, Write::Append(append) if append.session == session);
        if let Some(append) = self.waiting.iter().position(of).and_then(|at| self.waiting.remove(at)) {
            self.waiting.push_front(append);
        }
    }

    /// The next batch, as much as a commit should carry; without one, nobody commits any more.
    fn cut(&mut self) -> Option<Batch> {
        let most = if self.waiting.len() > BACKLOG { BACKLOG_WRITES } else { BATCH_WRITES };
        let (mut batch, mut replies, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((write, _)) = self.waiting.front() {
            bytes += weight(write);
            if !batch.is_empty() && (batch.len() >= most || bytes > BATCH_BYTES) {
                break;
            }
            if let Some((write, reply)) = self.waiting.pop_front() {
                batch.push(write);
                replies.push(reply);
            }
        }
        self.committing = !batch.is_empty();
        self.committing.then_some((batch, replies))
    }
}

/// Commits one batch after the other until nothing waits, and says if the store has failed: a writer that waits for ever
/// would be silent.
async fn commit(
    (journal, writing): (Arc<dyn Journal>, Arc<Writing>),
    queue: Arc<Mutex<Queue>>,
    first: Batch,
    persistence: ActorRef<PersistenceMsg>,
) {
    let committing = async {
        writing.begins();
        let mut under_way = Some(begin(&*journal, first));
        while let Some((committing, tell)) = under_way {
            let committed = committing.await;
            writing.ended();
            let failed = committed.as_ref().err().cloned();
            // The disk has its next batch before anybody hears of this one.
            under_way = match &failed {
                None => lock(&queue).cut().map(|batch| {
                    writing.begins();
                    begin(&*journal, batch)
                }),
                Some(_) => None,
            };
            tell(committed);
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    };
    let error = match AssertUnwindSafe(committing).catch_unwind().await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => JournalError::Unavailable("whoever waited for a commit panicked".into()),
    };
    if persistence.cast(PersistenceMsg::Inner(Failed(error))).is_err() {
        tracing::debug!("a commit failed after its writer had gone");
    }
}

type Committed = Result<Vec<Written>, JournalError>;

/// Hands a batch to the adapter, and gives what it will say and who is to be told. A panic of the adapter is a failed
/// store.
fn begin(
    journal: &dyn Journal,
    (batch, replies): Batch,
) -> (BoxFuture<'static, Committed>, impl FnOnce(Committed) + Send + use<>) {
    let records: Vec<Vec<Arc<Record>>> = batch
        .iter()
        .map(|write| match write {
            Write::Append(append) => append.records.clone(),
            Write::Open(_) | Write::Close(..) | Write::Deliver(..) => Vec::new(),
        })
        .collect();
    let (writes, unavailable) = (batch.len(), |text: &str| JournalError::Unavailable(text.into()));
    let committing = catch_unwind(AssertUnwindSafe(|| journal.commit(batch)));
    let committing = async move {
        let committed = match committing {
            Ok(committing) => AssertUnwindSafe(committing).catch_unwind().await,
            Err(panic) => Err(panic),
        };
        let committed = committed.unwrap_or_else(|_| Err(unavailable("the adapter panicked")))?;
        match committed.len() == writes {
            true => Ok(committed),
            false => Err(unavailable("the adapter did not answer every write")),
        }
    };
    let tell = move |committed: Committed| match committed {
        Ok(written) => {
            for ((written, records), reply) in written.into_iter().zip(records).zip(replies) {
                reply(Ok(vouched(written, records)));
            }
        }
        Err(error) => replies.into_iter().for_each(|reply| reply(Err(error.clone()))),
    };
    (committing.boxed(), tell)
}

/// What the committer says of a write, with its records vouched for.
pub(crate) fn vouched(written: Written, records: Vec<Arc<Record>>) -> Stored {
    match written {
        Written::Appended(_) => Stored::Appended(records.into_iter().map(Durable::vouch).collect()),
        Written::Opened(opened) => Stored::Opened(opened),
        Written::Closed(is_gone) => Stored::Closed(is_gone),
        Written::Delivered(_) => Stored::Delivered,
        Written::Refused(refusal) => Stored::Refused(refusal),
    }
}

/// Never, but for the wrong twins of this actor; nobody else could be one, since nobody else vouches.
#[cfg(feature = "testkit")]
fn is_vouched_early(message: &PersistenceMsg) -> bool {
    use crate::mutation::{Mutation, planted};
    let PersistenceMsg::Write(Write::Append(append), _) = message else { return false };
    let revives = || append.records.iter().any(|record| matches!(record.body, Body::SessionRevived(_)));
    planted(Mutation::AcknowledgeEarly) || planted(Mutation::DueEarly) && revives()
}

/// An append about which nobody hears any more: it was said to be durable.
#[cfg(feature = "testkit")]
fn vouched_early(message: PersistenceMsg) -> PersistenceMsg {
    let PersistenceMsg::Write(Write::Append(append), reply) = message else { return message };
    reply(Ok(Stored::Appended(append.records.iter().cloned().map(Durable::vouch).collect())));
    PersistenceMsg::Write(Write::Append(append), Box::new(drop))
}

/// Whether somebody waits for it: a stop does not queue behind the work of other sessions.
fn is_awaited(write: &Write) -> bool {
    let Write::Append(append) = write else { return false };
    let is_stop = |ended: &RunEnded| matches!(ended.ended.cause, Some(Cause::Stop { .. }));
    append.records.iter().any(|record| {
        matches!(&record.body, Body::RunStopping(_))
            || matches!(&record.body, Body::RunEnded(ended) if is_stop(ended))
    })
}

/// How much a write adds to its batch, roughly, in bytes.
fn weight(write: &Write) -> usize {
    let Write::Append(append) = write else { return 0 };
    let body = |record: &Arc<Record>| match &record.body {
        Body::SessionOpened(opened) => opened.prompt.len(),
        Body::RunAccepted(accepted) => {
            let system = accepted.spec.system.as_ref().map_or(0, |system| system.len());
            accepted.input.len() + accepted.history.bytes() + system
        }
        Body::ModelAnswered(answered) => {
            let message = &answered.message;
            let calls: usize = message.calls.iter().map(|call| call.arguments.len()).sum();
            message.text.len() + message.reasoning.len() + calls
        }
        Body::CallEnded(ended) => ended.end.content.len(),
        Body::ChildEnded(ended) => ended.told.len(),
        Body::ContextCompacted(compacted) => compacted.summary.as_deref().map_or(0, str::len),
        Body::SummaryAnswered(answered) => answered.text.len(),
        Body::MessageSteered(steered) => steered.text.len(),
        Body::ApprovalRequested(request) => request.question.len(),
        Body::TodoChanged(changed) => {
            changed.items.0.iter().map(|item| 64 + item.id.len() + item.content.len()).sum()
        }
        Body::SessionRevived(_)
        | Body::RunStopping(_)
        | Body::RunEnded(_)
        | Body::ModelStarted(_)
        | Body::ModelFailed(_)
        | Body::ModelWaiting(_)
        | Body::LateSettled(_)
        | Body::CallAdmitted(_)
        | Body::CallStarted(_)
        | Body::CallLost(_)
        | Body::RunExhausted(_)
        | Body::RunReopened(_)
        | Body::BudgetRaised(_)
        | Body::SummaryStarted(_)
        | Body::SummaryFailed(_)
        | Body::ApprovalAnswered(_) => 0,
    };
    let founded = append.found.iter().flat_map(|founded| &founded.records);
    let records: usize = append.records.iter().chain(founded).map(|record| 256 + body(record)).sum();
    records + append.send.iter().map(|(_, item)| item.len()).sum::<usize>()
}

/// Reads a session's records from `from` on, page by page, and hands each to `each`; behind a page that is full, a journal
/// that reads on threads of its own reads the next [`AHEAD`] ones meanwhile.
pub(crate) async fn replay(
    journal: &dyn Journal,
    session: SessionId,
    from: Seq,
    mut each: impl FnMut(Seq, Durable<Arc<Record>>) + Send,
) -> Result<(), ReadError> {
    let mut from = from.max(1);
    let mut read = || {
        let page = journal.read(Read::Records { session, from, max: PAGE });
        from += PAGE as Seq;
        page
    };
    let mut reading = VecDeque::from([read()]);
    while let Some(page) = reading.pop_front() {
        let Rows::Records(page) = page.await? else {
            return Err(ReadError::Unavailable("the journal answered another question".into()));
        };
        if page.len() < PAGE {
            reading.clear();
        } else {
            reading.resize_with(AHEAD, &mut read);
        }
        for stored in page {
            each(stored.seq, Durable::vouch(stored.record));
        }
    }
    Ok(())
}

/// The records of a run that has ended, and of no other.
pub(crate) async fn records_of(journal: &dyn Journal, row: &RunRow) -> Result<Vec<Arc<Record>>, ReadError> {
    let (mut records, mut from) = (Vec::new(), row.first);
    while from <= row.last {
        let max = usize::try_from(row.last - from + 1).unwrap_or(PAGE).min(PAGE);
        let page = Read::Records { session: row.session, from, max };
        let Rows::Records(page) = journal.read(page).await? else {
            return Err(ReadError::Unavailable("the journal answered another question".into()));
        };
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        let own = page.into_iter().filter(|stored| stored.record.body.run() == Some(row.id));
        records.extend(own.map(|stored| stored.record));
    }
    Ok(records)
}

//! From a session's id to its state, and to its actor: taking it over, reading its journal, and waking it up.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use ractor::{Actor, ActorProcessingErr, SpawnErr};

use crate::{
    model::{Cause, Incarnation, SessionId},
    persistence::{Stored, replay},
    port::{Journal, JournalError, Read, ReadError, Rows, Write},
    session::{Arguments, CallTasks, Session},
    supervisor::{
        burial::write,
        directory::{Directory, tell},
        entry::{Place, Then},
        sessions::Inner,
    },
    turn::{Input, ReplayedSession},
};

/// A run whose session has died so often in a row at the same step is `failed(crash_loop)`.
const DEATHS_AT_ONE_STEP: u32 = 3;
/// How often a journal that the store cannot read is tried, before the runtime ends of it.
const READS: u32 = 3;
/// Between the first two of them; it doubles.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// Why a session is not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unopened {
    /// The store takes no writes. The runtime is about to end of that.
    #[error(transparent)]
    Write(#[from] JournalError),
    /// The store cannot be read. It says nothing of the session.
    #[error("{0}")]
    Read(ReadError),
    /// This program cannot read this session's journal.
    #[error("{0}")]
    Unreadable(String),
}

impl From<ReadError> for Unopened {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Record { .. } => Self::Unreadable(error.to_string()),
            ReadError::Unavailable(_) | ReadError::Row { .. } => Self::Read(error),
        }
    }
}

/// A session that can be woken up, as whom, and whether something waits in its inbox.
pub(crate) type Opened = (ReplayedSession, Incarnation, bool);

impl Directory {
    /// Reads the session's journal, in a task.
    pub(super) fn open(&mut self, session: SessionId) {
        let (foundation, me) = (Arc::clone(&self.foundation), self.me.clone());
        let opening = self.take_over(session);
        tokio::spawn(async move {
            let opened = open(&*foundation.journal, session, opening).await;
            tell(&me, Inner::Opened(session, Box::new(opened)));
        });
    }

    /// Takes a session over. As whom is not known until that is done: whoever lets it go before takes it over again.
    pub(super) fn take_over(
        &mut self,
        session: SessionId,
    ) -> impl Future<Output = Result<Stored, JournalError>> + Send + use<> {
        if let Some(entry) = self.entries.get_mut(&session) {
            entry.incarnation = None;
            self.foundation.roster.note(session, entry);
        }
        write(&self.foundation.wiring.persistence, Write::Open(session))
    }

    /// The journal was read, or not. An error is one of the store and ends this actor.
    pub(super) async fn opened(
        &mut self,
        session: SessionId,
        opened: Result<Opened, Unopened>,
    ) -> Result<(), ActorProcessingErr> {
        let Some(entry) = self.entries.get_mut(&session).filter(|_| !self.suspended) else { return Ok(()) };
        match opened {
            Ok(opened) => self.wake(session, opened).await,
            Err(Unopened::Unreadable(why)) => {
                self.bury(session, None, Cause::Unreadable { error: why.clone() }, Then::Quarantine(why));
            }
            // Whoever waits is told by the runtime's end, which is near.
            Err(Unopened::Write(error)) => tracing::debug!(%session, %error, "not opened"),
            Err(Unopened::Read(error)) if entry.reads + 1 >= READS => return Err(error.into()),
            Err(Unopened::Read(error)) => {
                tracing::warn!(%session, %error, "the store cannot be read, trying again");
                let (pause, me) = (READ_AGAIN * 2_u32.pow(entry.reads), self.me.clone());
                entry.reads += 1;
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    tell(&me, Inner::Again(session));
                });
            }
        }
        Ok(())
    }

    /// Gives the session its next actor, unless it has died too often where it stands.
    async fn wake(&mut self, session: SessionId, (dormant, incarnation, is_rung): Opened) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.reads = 0;
        entry.incarnation = Some(incarnation);
        let is_nowhere = dormant.is_new() && entry.new.is_none();
        // It was removed since it was looked up: whoever said something looks again.
        if is_nowhere && !entry.place.take_waiting().is_empty() {
            return self.forget(session);
        }
        if let Some(error) = entry.died_of.take() {
            let standing = dormant.crash_point();
            if entry.crashes.count(standing) >= DEATHS_AT_ONE_STEP {
                let run = standing.map(|standing| standing.run);
                let then = if run.is_some() { Then::GoOn } else { Then::Forget };
                return self.bury(session, run, Cause::CrashLoop { error }, then);
            }
        }
        entry.rests = false;
        let waiting = entry.place.take_waiting().into_iter().map(|message| entry.hand(message)).collect();
        let boot = self.foundation.boot.clone();
        let first = match &entry.new {
            Some(new) if dormant.is_new() => Input::Opened {
                key: Arc::clone(&new.key),
                prompt: Arc::clone(&new.prompt),
                incarnation,
                boot,
            },
            Some(_) | None => Input::Revived { incarnation, boot },
        };
        entry.tasks = CallTasks::default();
        self.foundation.roster.note(session, entry);
        let (wiring, tasks) = (Arc::clone(&self.foundation.wiring), entry.tasks.clone());
        let arguments = Arguments { id: session, wiring, dormant, first, tasks, is_rung, waiting };
        match Actor::spawn_linked(None, Session, arguments, self.me.get_cell()).await {
            Ok((actor, _)) => {
                self.actors.insert(actor.get_id(), session);
                entry.place = Place::Live(actor);
                self.look_in(self.foundation.idle);
            }
            Err(SpawnErr::StartupFailed(error)) => self.died(session, &error),
            Err(error @ (SpawnErr::ActorAlreadyStarted | SpawnErr::ActorAlreadyRegistered(_))) => {
                self.died(session, &error.into());
            }
        }
    }
}

/// Reads the journal of a session that `opening` takes over, behind whatever an earlier incarnation still has in the queue.
pub(super) async fn open(
    journal: &dyn Journal,
    session: SessionId,
    opening: impl Future<Output = Result<Stored, JournalError>> + Send,
) -> Result<Opened, Unopened> {
    let opened = match opening.await? {
        Stored::Opened(opened) => opened,
        Stored::Refused(refusal) => return Err(Unopened::Unreadable(refusal.to_string())),
        Stored::Appended(_) | Stored::Closed(_) | Stored::Delivered => return Err(other_question()),
    };
    if let Some(why) = opened.unreadable {
        return Err(Unopened::Unreadable(why));
    }
    let folded = AssertUnwindSafe(fold(journal, session)).catch_unwind().await;
    let dormant = folded.unwrap_or_else(|_| {
        Err(Unopened::Unreadable("reading its journal makes this program panic".into()))
    })?;
    if dormant.last_seq() != opened.last {
        let (read, last) = (dormant.last_seq(), opened.last);
        return Err(Unopened::Unreadable(format!("its journal has {read} records of {last}")));
    }
    check_account(journal, &dormant).await?;
    Ok((dormant, opened.incarnation, !opened.inbox.is_empty()))
}

/// Whether the run under way has an account that can be read: nothing it does could be booked otherwise.
async fn check_account(journal: &dyn Journal, dormant: &ReplayedSession) -> Result<(), Unopened> {
    let Some(standing) = dormant.crash_point() else { return Ok(()) };
    match journal.read(Read::Account(standing.run.into())).await {
        Err(error @ ReadError::Row { .. }) => Err(Unopened::Unreadable(error.to_string())),
        Err(error @ (ReadError::Unavailable(_) | ReadError::Record { .. })) => Err(error.into()),
        Ok(Rows::Account(None)) => Err(Unopened::Unreadable(format!("run {} has no account", standing.run))),
        Ok(Rows::Account(Some(_))) => Ok(()),
        Ok(Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Runs(_) | Rows::Models(_)) => {
            Err(other_question())
        }
    }
}

async fn fold(journal: &dyn Journal, session: SessionId) -> Result<ReplayedSession, Unopened> {
    let mut dormant = ReplayedSession::empty(session);
    replay(journal, session, 1, |_, record| dormant.fold(&record)).await?;
    Ok(dormant)
}

pub(super) fn other_question() -> Unopened {
    Unopened::Unreadable("the store answered another question".into())
}

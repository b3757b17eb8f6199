//! Opens sessions: takes a session over, reads its journal, checks the account of its run, and starts its actor. A run
//! whose session keeps crashing at one step is force-failed instead. Also the errors of an opening.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use ractor::{Actor, ActorProcessingErr, SpawnErr};

use crate::{
    model::{Incarnation, OutcomeCause, SessionId, SessionOpened, SessionRevived},
    persistence::{self, WriteResult, replay},
    port::{Journal, JournalError, OpenedSession, ReadError, WriteRefusal},
    session::{CallTasks, SessionActor, SessionArguments},
    supervisor::{
        directory::{Directory, send},
        entry::{AfterForceFail, EntryPhase},
        sessions::SessionsInternalMsg,
    },
    turn::{Input, ReplayedSession},
};

/// Consecutive crashes at one step after which the run ends as `failed(crash_loop)`.
const MAX_CRASHES_AT_ONE_STEP: u32 = 3;
/// Tries to read a journal from a failing store, before the runtime ends.
const MAX_READ_TRIES: u32 = 3;
/// Delay before the second try; it doubles with each further one.
const READ_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Why a session could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenSessionError {
    /// The store takes no writes; the runtime is about to end.
    #[error(transparent)]
    Write(#[from] JournalError),
    /// The store cannot be read; nothing is known about the session.
    #[error("{0}")]
    Read(ReadError),
    /// The session's journal, its inbox or the account of its run cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl From<ReadError> for OpenSessionError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Record { .. } => Self::Unreadable(error.to_string()),
            ReadError::Unavailable(_) | ReadError::Row { .. } => Self::Read(error),
        }
    }
}

impl From<WriteRefusal> for OpenSessionError {
    fn from(refusal: WriteRefusal) -> Self {
        Self::Unreadable(refusal.to_string())
    }
}

/// A session that can be started, its incarnation, and whether its inbox has messages.
pub(crate) type RecoveredSession = (ReplayedSession, Incarnation, bool);

impl Directory {
    /// Takes the session over and reads its journal in a task, which reports `Opened`.
    pub(super) fn open(&mut self, session: SessionId) {
        let (parts, me) = (Arc::clone(&self.parts), self.me.clone());
        let opening = self.take_over(session);
        tokio::spawn(async move {
            let opened = open_session(&*parts.journal, session, opening).await;
            send(&me, SessionsInternalMsg::Opened(session, Box::new(opened)));
        });
    }

    /// Takes a session over, which gives it a new incarnation. If the session is forgotten before the incarnation is
    /// known, it is taken over again.
    pub(super) fn take_over(
        &mut self,
        session: SessionId,
    ) -> impl Future<Output = WriteResult<OpenedSession>> + Send + use<> {
        if let Some(entry) = self.entries.get_mut(&session) {
            entry.incarnation = None;
            self.parts.checkpoint.record(session, entry);
        }
        persistence::open(&self.parts.persistence, session)
    }

    /// Handles the result of a read. An error means a failed store and ends this actor.
    pub(super) async fn on_opened(
        &mut self,
        session: SessionId,
        opened: Result<RecoveredSession, OpenSessionError>,
    ) -> Result<(), ActorProcessingErr> {
        let Some(entry) = self.entries.get_mut(&session).filter(|_| !self.is_suspended) else {
            return Ok(());
        };
        match opened {
            Ok(opened) => self.start_actor(session, opened).await,
            Err(OpenSessionError::Unreadable(why)) => {
                self.force_fail(
                    session,
                    None,
                    OutcomeCause::Unreadable { error: why.clone() },
                    AfterForceFail::Quarantine(why),
                );
            }
            // The runtime is about to end, and callers learn the error from that.
            Err(OpenSessionError::Write(error)) => tracing::debug!(%session, %error, "not opened"),
            Err(OpenSessionError::Read(error)) if entry.failed_reads + 1 >= MAX_READ_TRIES => {
                return Err(error.into());
            }
            Err(OpenSessionError::Read(error)) => {
                tracing::warn!(%session, %error, "the store cannot be read, trying again");
                let (pause, me) = (READ_RETRY_DELAY * 2_u32.pow(entry.failed_reads), self.me.clone());
                entry.failed_reads += 1;
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    send(&me, SessionsInternalMsg::RetryRead(session));
                });
            }
        }
        Ok(())
    }

    /// Starts the session's next actor, unless it crashed too often at its current step.
    async fn start_actor(
        &mut self,
        session: SessionId,
        (replayed, incarnation, has_inbox): RecoveredSession,
    ) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.failed_reads = 0;
        entry.incarnation = Some(incarnation);
        let is_nowhere = replayed.is_new() && entry.seed.is_none();
        // The session was removed after the lookup: dropped replies make the callers look it up again.
        if is_nowhere && !entry.phase.take_waiting().is_empty() {
            return self.forget(session);
        }
        if let Some(error) = entry.last_crash.take() {
            let crash_point = replayed.crash_point();
            if entry.crashes.count(crash_point) >= MAX_CRASHES_AT_ONE_STEP {
                let run = crash_point.map(|crash_point| crash_point.run);
                let then = if run.is_some() { AfterForceFail::Resume } else { AfterForceFail::Forget };
                return self.force_fail(session, run, OutcomeCause::CrashLoop { error }, then);
            }
        }
        entry.is_write_only = false;
        let waiting =
            entry.phase.take_waiting().into_iter().map(|message| entry.prepare_message(message)).collect();
        let boot = self.parts.boot.clone();
        let first = match &entry.seed {
            Some(new) if replayed.is_new() => Input::Opened(SessionOpened {
                key: Arc::clone(&new.key),
                agent: new.agent.clone(),
                prompt: Arc::clone(&new.prompt),
                incarnation,
                boot,
            }),
            Some(_) | None => Input::Revived(SessionRevived { incarnation, boot }),
        };
        entry.tasks = CallTasks::default();
        self.parts.checkpoint.record(session, entry);
        let (parts, tasks) = (Arc::clone(&self.parts), entry.tasks.clone());
        let arguments = SessionArguments { id: session, parts, replayed, first, tasks, has_inbox, waiting };
        match Actor::spawn_linked(None, SessionActor, arguments, self.me.get_cell()).await {
            Ok((actor, _)) => {
                self.actors.insert(actor.get_id(), session);
                entry.phase = EntryPhase::Live(actor);
                self.schedule_scan(self.parts.idle);
            }
            Err(SpawnErr::StartupFailed(error)) => self.on_crash(session, &error),
            Err(error @ (SpawnErr::ActorAlreadyStarted | SpawnErr::ActorAlreadyRegistered(_))) => {
                self.on_crash(session, &error.into());
            }
        }
    }
}

/// Reads the journal of a session after `opening`, which is queued behind all writes of earlier incarnations.
pub(super) async fn open_session(
    journal: &dyn Journal,
    session: SessionId,
    opening: impl Future<Output = WriteResult<OpenedSession>> + Send,
) -> Result<RecoveredSession, OpenSessionError> {
    let opened = opening.await??;
    if let Some(why) = opened.inbox_error {
        return Err(OpenSessionError::Unreadable(why));
    }
    let mut replayed = ReplayedSession::empty(session);
    let folding = replay(journal, session, 1, |_, record| replayed.fold(&record));
    AssertUnwindSafe(folding)
        .catch_unwind()
        .await
        .map_err(|_| OpenSessionError::Unreadable("reading its journal makes this program panic".into()))??;
    if replayed.last_seq() != opened.last {
        let (read, last) = (replayed.last_seq(), opened.last);
        return Err(OpenSessionError::Unreadable(format!("its journal has {read} records of {last}")));
    }
    check_account(journal, &replayed).await?;
    Ok((replayed, opened.incarnation, !opened.inbox.is_empty()))
}

/// Checks that the account of the current run can be read: without it no spend could be booked.
async fn check_account(journal: &dyn Journal, replayed: &ReplayedSession) -> Result<(), OpenSessionError> {
    let Some(crash_point) = replayed.crash_point() else { return Ok(()) };
    match journal.rows().account(crash_point.run.into()).await {
        Err(error @ ReadError::Row { .. }) => Err(OpenSessionError::Unreadable(error.to_string())),
        Err(error @ (ReadError::Unavailable(_) | ReadError::Record { .. })) => Err(error.into()),
        Ok(None) => Err(OpenSessionError::Unreadable(format!("run {} has no account", crash_point.run))),
        Ok(Some(_)) => Ok(()),
    }
}

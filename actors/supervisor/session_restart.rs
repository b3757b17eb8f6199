//! Restarts of sessions that crash or cannot be opened: their tasks are ended, and they are opened again, or their runs
//! are force-failed.

use std::{mem::take, sync::Arc};

use ractor::{ActorId, ActorProcessingErr, RpcReplyPort};

use crate::{
    model::{Incarnation, OutcomeCause, RunId, SessionId},
    policy::RestartIntensity,
    port::JournalError,
    session::SubmitError,
    supervisor::{
        directory::{Directory, reject_submission, send},
        entry::{AfterForceFail, AfterTasksEnd, EntryPhase},
        force_fail::force_fail_runs,
        opening::OpenSessionError,
        sessions::SessionsInternalMsg,
    },
};

/// Restart intensity of a session, whatever the steps; beyond it all its runs are force-failed.
const SESSION_RESTARTS: RestartIntensity = RestartIntensity { crashes_to_give_up: 12, period_ms: 60_000 };

impl Directory {
    /// An actor has stopped or crashed.
    pub(super) fn on_actor_end(&mut self, actor: ActorId, error: Option<ActorProcessingErr>) {
        let Some(session) = self.actors.remove(&actor) else { return };
        match error {
            _ if self.is_suspended => {}
            Some(error) => self.on_crash(session, &error),
            None => self.end_tasks(session, AfterTasksEnd::ReviveIfWanted),
        }
    }

    pub(super) fn on_crash(&mut self, session: SessionId, error: &ActorProcessingErr) {
        let now_ms = self.parts.clock.monotonic_ms();
        let Some(entry) = self.entries.get_mut(&session) else { return };
        // The runtime is about to end; the error tells nothing about the session.
        if error.is::<JournalError>() {
            return self.end_tasks(session, AfterTasksEnd::ReviveIfWanted);
        }
        entry.crash_count += 1;
        self.crashes += 1;
        entry.last_crash = Some(error.to_string());
        let may_restart = entry.restart_history.may_restart(now_ms, SESSION_RESTARTS);
        let next = if may_restart { AfterTasksEnd::Revive } else { AfterTasksEnd::ForceFail };
        tracing::warn!(%session, %error, ?next, "session actor died");
        self.end_tasks(session, next);
    }

    pub(super) fn end_tasks(&mut self, session: SessionId, next: AfterTasksEnd) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.phase = EntryPhase::Ending(entry.phase.take_waiting(), next);
        let (tasks, me) = (entry.tasks.clone(), self.me.clone());
        tokio::spawn(async move {
            #[cfg(feature = "testkit")]
            if crate::mutants::mutant_enabled(crate::mutants::Mutant::ReviveEarly) {
                tasks.detach_all();
            }
            tasks.abort_all().await;
            send(&me, SessionsInternalMsg::TasksEnded(session));
        });
    }

    pub(super) fn on_tasks_end(&mut self, session: SessionId) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        if entry.is_done() {
            return self.forget(session);
        }
        let EntryPhase::Ending(waiting, next) = &mut entry.phase else { return };
        match *next {
            AfterTasksEnd::ForceFail => {
                let error = entry.last_crash.take().unwrap_or_else(|| "its actor keeps dying".into());
                self.force_fail(session, None, OutcomeCause::CrashLoop { error }, AfterForceFail::Forget);
            }
            AfterTasksEnd::ReviveIfWanted | AfterTasksEnd::Revive => {
                entry.phase = EntryPhase::Opening(take(waiting));
                self.open(session);
            }
        }
    }

    /// Ends a run as `failed(crash_loop)` without opening its session, which must not be in the directory.
    pub(super) fn force_fail_run(
        &mut self,
        session: SessionId,
        run: RunId,
        error: String,
        reply: RpcReplyPort<()>,
    ) {
        let is_here = self.entries.get(&session).is_some_and(|entry| !entry.is_leaving());
        if self.is_suspended || is_here {
            tracing::warn!(%session, %run, "a run of a session that is here is not given up");
            return;
        }
        self.entries.entry(session).or_default();
        self.force_fail(session, Some(run), OutcomeCause::CrashLoop { error }, AfterForceFail::Reply(reply));
    }

    /// Ends the open runs of a session, or one of them; messages wait until that is done.
    pub(super) fn force_fail(
        &mut self,
        session: SessionId,
        run: Option<RunId>,
        cause: OutcomeCause,
        then: AfterForceFail,
    ) {
        tracing::error!(%session, %cause, "the session's runs are ended");
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.phase = EntryPhase::ForceFailing(entry.phase.take_waiting(), then);
        let (parts, me) = (Arc::clone(&self.parts), self.me.clone());
        let opening = self.take_over(session);
        tokio::spawn(async move {
            let result = force_fail_runs(&parts, (session, run), cause, opening).await;
            send(&me, SessionsInternalMsg::ForceFailed(session, result));
        });
    }

    /// The runs were ended, or not. An error means a failed store and ends this actor.
    pub(super) fn on_force_failed(
        &mut self,
        session: SessionId,
        result: Result<Incarnation, OpenSessionError>,
    ) -> Result<(), ActorProcessingErr> {
        let incarnation = match result {
            Ok(incarnation) => Some(incarnation),
            Err(OpenSessionError::Write(_)) => return Ok(()),
            Err(OpenSessionError::Read(error)) => return Err(error.into()),
            Err(OpenSessionError::Unreadable(error)) => {
                tracing::error!(%session, error, "its runs cannot be ended");
                None
            }
        };
        let Some(entry) = self.entries.get_mut(&session) else { return Ok(()) };
        entry.incarnation = incarnation;
        let EntryPhase::ForceFailing(waiting, then) = &mut entry.phase else { return Ok(()) };
        let (waiting, then) = (take(waiting), std::mem::replace(then, AfterForceFail::Forget));
        match then {
            AfterForceFail::Resume => {
                entry.phase = EntryPhase::Opening(waiting);
                self.open(session);
            }
            AfterForceFail::Forget => {
                self.forget(session);
                let why = SubmitError::CrashLooping(session);
                waiting.into_iter().for_each(|message| reject_submission(Some(message), &why));
            }
            AfterForceFail::Reply(reply) => {
                if waiting.is_empty() && !entry.is_wanted {
                    self.forget(session);
                } else {
                    entry.phase = EntryPhase::Opening(waiting);
                    self.open(session);
                }
                if reply.send(()).is_err() {
                    tracing::debug!(%session, "the reply to a force-fail was dropped by its caller");
                }
            }
            AfterForceFail::Quarantine(why) => {
                let refusal = SubmitError::Quarantined { session, error: why.clone() };
                entry.phase = EntryPhase::Quarantined(why);
                waiting.into_iter().for_each(|message| reject_submission(Some(message), &refusal));
            }
        }
        Ok(())
    }
}

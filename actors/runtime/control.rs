//! Control of runs from outside: steering, force-failing, and stopping without resuming the session. `Runtime::stop` is
//! in `mod.rs`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    model::{MessageSteered, QueueOverrides, RunId, RunState, SessionId, SessionRow, StopReason},
    redaction::redact_text,
    runtime::{AfterCommand, RunError, Runtime, submit::MAX_TRIES},
    session::{InputReply, SubmitError},
    supervisor::SessionsMsg,
    turn::Input,
};

/// A steering message that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteerReceipt {
    /// The run that was steered.
    pub run: RunId,
    /// The run's session.
    pub session: SessionId,
    /// The run that the message becomes if the steered run completes before a model has read it, and no other run or
    /// message waits. Otherwise the next run reads it.
    pub next: RunId,
}

impl Runtime {
    /// Steers a run that is under way or queued; resolves when the message is durable.
    ///
    /// The model reads it inside the last tool result before its next request; calls that have not started by then are
    /// skipped. A message that comes too late for the run is the input of the next one. A run that has ended, or is
    /// being stopped, is [`RunError::Ended`].
    pub async fn steer(&self, run: RunId, text: impl Into<Arc<str>>) -> Result<SteerReceipt, RunError> {
        let (mut text, next) = (text.into(), RunId::from_bits(self.new_ulid()));
        redact_text(&mut text, &*self.parts.redactor);
        if text.trim().is_empty() {
            return Err(RunError::Invalid {
                field: "text",
                error: "is empty; say what the run is to know".into(),
            });
        }
        let row = self.row(run).await?;
        if row.state == RunState::Ended {
            return Err(RunError::Ended(run));
        }
        let session = row.session;
        // A repeat to a session that crashed meanwhile is recognized by its id, even if the run has ended.
        let input = Input::Steer(MessageSteered { run, text, followup_run: next, request_hash: None });
        let is_recorded =
            self.repeat_command(session, input, InputReply::Steer, AfterCommand::Resume).await?;
        if is_recorded { Ok(SteerReceipt { run, session, next }) } else { Err(RunError::Ended(run)) }
    }

    /// Sets how the messages of a session queue, and returns its row; resolves when that is durable. It holds for messages
    /// that are sent from then on; one that names a mode has that mode. The session is not resumed by it.
    pub async fn set_queue(&self, session: SessionId, queue: QueueOverrides) -> Result<SessionRow, RunError> {
        if queue.cap == Some(0) {
            return Err(RunError::Invalid { field: "cap", error: "is 0; at least one message waits".into() });
        }
        self.session(session).await?;
        let input = Input::SetQueue(queue);
        self.repeat_command(session, input, InputReply::SetQueue, AfterCommand::Rest).await?;
        self.session(session).await
    }

    /// Ends a run as `failed(crash_loop)`, because the process crashes whenever its session is opened. The session is
    /// not opened, and must not be live here. `error` describes the crashes. Resolves when the run's end is durable;
    /// runs queued behind it resume when their session is revived.
    pub async fn force_fail(&self, run: RunId, error: &str) -> Result<(), RunError> {
        for _ in 0..MAX_TRIES {
            let row = self.row(run).await?;
            if row.state == RunState::Ended {
                return Ok(());
            }
            if self
                .request(|reply| SessionsMsg::ForceFail((row.session, run), error.into(), reply))
                .await
                .is_none()
            {
                self.check_running()?;
            }
        }
        Err(RunError::WaitTimedOut(run))
    }

    /// Stops a run without resuming its session; resolves when the run's end is durable. Runs queued behind it stay
    /// queued, and neither a provider nor a tool is needed. If the session's runs are carried out here already, this is
    /// [`Runtime::stop`].
    pub async fn stop_without_resume(&self, run: RunId, reason: StopReason) -> Result<(), RunError> {
        self.stop_and(run, reason, AfterCommand::Rest).await
    }

    /// Asks the actor of a session to stop if it is idle, before its idle time is over. Resolves before it has.
    pub fn passivate(&self, session: SessionId) -> Result<(), RunError> {
        self.cast(SessionsMsg::Passivate(session))
    }

    pub(super) async fn stop_and(
        &self,
        run: RunId,
        reason: StopReason,
        then: AfterCommand,
    ) -> Result<(), RunError> {
        let mut session = self.row(run).await?.session;
        for _ in 0..MAX_TRIES {
            let row = self.row(run).await?;
            if row.state == RunState::Ended {
                return Ok(());
            }
            session = row.session;
            let input = Input::Stop { run: Some(run), reason };
            match self.send_command(session, input, InputReply::Stop, then).await? {
                Some(((), true)) => return Ok(()),
                // A session that crashed before the run's end is not revived for a write-only command, so the command
                // is sent again.
                Some(((), false)) | None => self.check_running()?,
            }
        }
        Err(SubmitError::CrashLooping(session).into())
    }
}

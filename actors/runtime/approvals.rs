//! Calls that wait for a person.

use tokio::sync::oneshot::channel;

use crate::{
    model::{ApprovalRequested, CallId, Record, RunRow, RunState, SessionId, Timestamp, Verdict},
    runtime::{RunError, Runtime, submit::TRIES},
    session::{NotAccepted, SessionMsg},
    supervisor::SessionsMsg,
    turn::{self, Input},
};

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What is asked.
    pub request: ApprovalRequested,
    /// Since when.
    pub since: Timestamp,
}

/// The open questions of a session, by its records from the first one on.
pub fn questions<'a>(session: SessionId, records: impl Iterator<Item = &'a Record>) -> Vec<Question> {
    let open = turn::open_approvals(session, records).into_iter();
    open.map(|(request, since)| Question { request, since }).collect()
}

impl Runtime {
    /// The questions of all runs that are parked, in the order of runs.
    pub async fn questions(&self) -> Result<Vec<Question>, RunError> {
        let mut open = Vec::new();
        for row in self.open_runs().await?.into_iter().filter(|row| row.state == RunState::Parked) {
            let records = self.journal(row.session, 1).await?;
            open.extend(questions(row.session, records.iter().map(|(_, record)| &**record)));
        }
        Ok(open)
    }

    /// Decides about a call in doubt; resolves when that is on disk, and the run goes on. A call that nobody has to decide
    /// about is [`RunError::NotAsked`].
    pub async fn decide(&self, call: CallId, verdict: Verdict) -> Result<RunRow, RunError> {
        let session = self.row(call.run).await?.session;
        for _ in 0..TRIES {
            let input = Input::Decided { call, verdict };
            let decide = |reply| SessionsMsg::To(session, None, SessionMsg::Decide(input, reply));
            match self.ask(decide).await {
                Some(true) => return self.row(call.run).await,
                Some(false) => return Err(RunError::NotAsked(call)),
                None => self.alive()?,
            }
        }
        Err(RunError::NotAccepted(NotAccepted::KeepsDying(session)))
    }

    /// Likewise, and does not let the session go on for that: unless it does here already, the run goes on when somebody
    /// takes it up.
    pub async fn decide_at_rest(&self, call: CallId, verdict: Verdict) -> Result<RunRow, RunError> {
        let session = self.row(call.run).await?.session;
        for _ in 0..TRIES {
            let ((decided, on_decided), (rested, on_rest)) = (channel(), channel());
            let input = Input::Decided { call, verdict };
            let order = SessionMsg::DecideAtRest(input, decided.into(), rested.into());
            self.cast(SessionsMsg::To(session, None, order))?;
            match (on_decided.await, on_rest.await) {
                (Ok(true), _) => return self.row(call.run).await,
                (Ok(false), _) => return Err(RunError::NotAsked(call)),
                (Err(_), _) => self.alive()?,
            }
        }
        Err(RunError::NotAccepted(NotAccepted::KeepsDying(session)))
    }
}

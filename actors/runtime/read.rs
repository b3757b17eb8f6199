//! What the runtime reads from the store. Starts nothing.

use std::sync::Arc;

use crate::{
    model::{AssistantMessage, Body, Ended, Outcome, Record, RunId, RunRow, Seq, SessionId, SessionRow},
    persistence::replay,
    port::{Read, ReadError, Rows},
    runtime::{RunError, RunResult, Runtime},
};

impl Runtime {
    /// A run's row.
    pub async fn row(&self, run: RunId) -> Result<RunRow, RunError> {
        self.read_runs(Read::Run(run)).await?.pop().ok_or(RunError::NoRun(run))
    }

    /// A session's row: by its id.
    pub async fn session(&self, session: SessionId) -> Result<SessionRow, RunError> {
        self.read_sessions(Read::Session(session)).await?.pop().ok_or(RunError::NoSession(session))
    }

    /// A session's row: by its key, if there is one.
    pub async fn session_of_key(&self, key: &str) -> Result<Option<SessionRow>, RunError> {
        Ok(self.read_sessions(Read::SessionOfKey(key.into())).await?.pop())
    }

    /// The records of a session from `from` on, each with its sequence.
    pub async fn journal(&self, session: SessionId, from: Seq) -> Result<Vec<(Seq, Arc<Record>)>, RunError> {
        let mut records = Vec::new();
        replay(&*self.journal, session, from, |seq, record| records.push((seq, Arc::clone(&*record))))
            .await?;
        Ok(records)
    }

    pub(super) async fn read_runs(&self, what: Read) -> Result<Vec<RunRow>, RunError> {
        match self.journal.read(what).await? {
            Rows::Runs(rows) => Ok(rows),
            Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Account(_) => Err(other_question()),
        }
    }

    pub(super) async fn read_sessions(&self, what: Read) -> Result<Vec<SessionRow>, RunError> {
        match self.journal.read(what).await? {
            Rows::Sessions(rows) => Ok(rows),
            Rows::Records(_) | Rows::Inbox(_) | Rows::Runs(_) | Rows::Account(_) => Err(other_question()),
        }
    }

    pub(super) async fn result(&self, row: RunRow) -> Result<RunResult, RunError> {
        // What was said last stands directly before the terminal record, in the same append.
        let records = self.journal(row.session, row.last.saturating_sub(1).max(row.first)).await?;
        let said = records.iter().find_map(|(_, record)| {
            let Body::ModelAnswered(answered) = &record.body else { return None };
            (answered.call.run == row.id && !answered.is_discarded()).then(|| Arc::clone(&answered.message))
        });
        let text = said.filter(|said| !said.text.is_empty()).map(|said| AssistantMessage::clone(&said).text);
        Ok(RunResult {
            run: row.id,
            session: row.session,
            ended: row.ended.unwrap_or(Ended { outcome: Outcome::Failed, cause: None }),
            text,
            iterations: row.iterations,
            usage: row.usage,
            accepted_at: row.accepted_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
        })
    }
}

fn other_question() -> RunError {
    RunError::Read(ReadError::Unavailable("the journal answered another question".into()))
}

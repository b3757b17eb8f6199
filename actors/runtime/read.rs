//! Reads of the runtime from the store: rows, records, and the result of a run. Starts nothing. Lists of rows are in
//! `mod.rs`.

use std::sync::Arc;

use crate::{
    model::{
        Body, Message, MessageFate, Outcome, OutcomeDetail, Record, RunAccepted, RunId, RunRow, Seq,
        SessionId, SessionRow,
    },
    persistence::{replay, run_records},
    policy::{Bill, FinalText, final_text, is_silent_reply},
    port::{ArtifactError, ArtifactName, Excerpt, ReadError},
    runtime::{RunError, RunResult, Runtime},
    turn::render_run,
};

impl Runtime {
    /// A run's index row.
    pub async fn row(&self, run: RunId) -> Result<RunRow, RunError> {
        self.parts.journal.rows().run(run).await?.ok_or(RunError::NoRun(run))
    }

    /// What became of a message, with its session; `None` if there is none. A run that was submitted as a task counts as a
    /// message of its own.
    pub async fn message(&self, id: RunId) -> Result<Option<(SessionId, MessageFate)>, RunError> {
        let rows = self.parts.journal.rows();
        let message = rows.message(id).await?;
        let run = match message.as_ref().map_or(Some(id), |message| message.place.run()) {
            Some(run) => rows.run(run).await?,
            None => None,
        };
        let session = message.as_ref().map(|row| row.session).or_else(|| run.as_ref().map(|row| row.session));
        Ok(session.map(|session| (session, MessageFate::of(message.as_ref(), run.as_ref()))))
    }

    /// A session's index row, by its id.
    pub async fn session(&self, session: SessionId) -> Result<SessionRow, RunError> {
        self.parts.journal.rows().session(session).await?.ok_or(RunError::NoSession(session))
    }

    /// A session's index row by its key; `None` if there is none.
    pub async fn session_of_key(&self, key: &str) -> Result<Option<SessionRow>, RunError> {
        Ok(self.parts.journal.rows().session_of_key(key).await?)
    }

    /// The records of a session in order, beginning with `from`, each with its sequence number.
    pub async fn journal(&self, session: SessionId, from: Seq) -> Result<Vec<(Seq, Arc<Record>)>, RunError> {
        let mut records = Vec::new();
        replay(&*self.parts.journal, session, from, |seq, record| records.push((seq, Arc::clone(&*record))))
            .await?;
        Ok(records)
    }

    /// The record that accepted a run.
    pub(super) async fn acceptance(&self, row: &RunRow) -> Result<RunAccepted, RunError> {
        let mut records = self.parts.journal.records(row.session, row.first, 1).await?;
        let record = records.pop().map(|stored| Arc::unwrap_or_clone(stored.record));
        if let Some(Record { body: Body::RunAccepted(accepted), .. }) = record {
            return Ok(*accepted);
        }
        let (first, session) = (row.first, row.session);
        let reason = format!("record {first} of session {session} accepts no run");
        Err(RunError::Read(ReadError::Unavailable(reason)))
    }

    /// Whether the record that accepted the run is where its row says, and can be read.
    pub async fn has_acceptance(&self, row: &RunRow) -> bool {
        let Ok(records) = self.parts.journal.records(row.session, row.first, 1).await else { return false };
        let is_it =
            |record: &Record| matches!(&record.body, Body::RunAccepted(accepted) if accepted.run == row.id);
        records.first().is_some_and(|stored| is_it(&stored.record))
    }

    /// All messages of a session up to the end of this run, its imported history included.
    pub async fn messages_until(&self, row: &RunRow) -> Result<Vec<Message>, RunError> {
        let records = self.journal(row.session, 1).await?;
        let until_end = records.iter().take_while(|(seq, _)| *seq <= row.last);
        Ok(render_run(row.session, until_end.map(|(_, record)| &**record)))
    }

    /// At most `max` bytes of an artifact from `offset` on, and its size.
    pub async fn read_artifact(
        &self,
        name: ArtifactName,
        offset: u64,
        max: usize,
    ) -> Result<Excerpt, ArtifactError> {
        self.parts.executor.artifacts.read(name, offset, max).await
    }

    pub(super) async fn result(&self, row: RunRow) -> Result<RunResult, RunError> {
        let records = match run_records(&*self.parts.journal, &row).await {
            // The outcome is known from the row all the same.
            Err(ReadError::Record { session, seq, error }) => {
                tracing::warn!(%session, run = %row.id, seq, %error, "a run's records cannot be read");
                Vec::new()
            }
            records => records?,
        };
        let ended = row.ended.unwrap_or(OutcomeDetail { outcome: Outcome::Failed, cause: None });
        let task = records.iter().find_map(|record| {
            let Body::RunAccepted(accepted) = &record.body else { return None };
            Some(accepted.spec.isolation_key.clone())
        });
        let mut bill = Bill::default();
        records.iter().for_each(|record| bill.take(record));
        let answer = final_text(&records, ended.outcome);
        let is_silent = |text: &FinalText| ended.outcome == Outcome::Completed && is_silent_reply(&text.text);
        let silent = answer.as_ref().is_some_and(is_silent);
        Ok(RunResult {
            run: row.id,
            session: row.session,
            task,
            answer: answer.filter(|_| !silent),
            silent,
            messages: render_run(row.session, records.iter().map(|record| &**record)),
            ended,
            legs: row.leg,
            iterations: row.iterations,
            usage: row.usage,
            cost: bill.nano_usd(),
            unpriced: bill.unpriced().to_vec(),
            accepted_at: row.accepted_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
        })
    }
}

//! The session's inbox. Rows are read after a notification, in a task that also loads the results of ended subagents.
//! They become inputs, recorded with their consequences. `notify_inbox` notifies another session.
//!
//! Invariant: only the append that consumes a row deletes it. So a row may be read twice, but takes effect once.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    model::{Artifact, CallId, ChildEnded, InboxMessage, RunRow, SessionId, SubagentRef},
    persistence::run_records,
    policy::delegation::{SubagentReport, max_answer_bytes, removed_subagent_end},
    port::{ArtifactName, AttemptArtifacts, InboxRow, ReadError},
    session::{
        SessionInternalMsg, SessionMsg,
        shell::SessionActorState,
        tasks::{TaskSpawner, send},
    },
    supervisor::{RuntimeParts, SessionsMsg},
    turn::Input,
};

/// Whether the inbox is being read, and up to which row it was.
#[derive(Debug, Default)]
pub(super) struct InboxReader {
    is_reading: bool,
    /// A notification arrived during the read.
    has_more: bool,
    /// The last row that was enqueued.
    last: u64,
}

impl InboxReader {
    /// Whether no read is under way.
    pub(super) const fn is_idle(&self) -> bool {
        !self.is_reading
    }
}

/// The result of a read: row ids with their inputs.
pub(crate) type InboxInputs = Vec<(u64, Input)>;

impl SessionActorState {
    /// Reads the inbox, or notes that it must be read again. Also called when a new subagent is only to be woken.
    pub(super) fn on_inbox_ready(&mut self) {
        if self.inbox.is_reading {
            self.inbox.has_more = true;
            return;
        }
        self.inbox.is_reading = true;
        let (window, batch) = self.result_share_basis();
        self.tasks.read_inbox(self.inbox.last, window, batch);
    }

    /// Enqueues the new rows, and reads again if a notification arrived meanwhile.
    pub(super) fn on_inbox_read(&mut self, inputs: InboxInputs) {
        self.inbox.is_reading = false;
        for (row, input) in inputs {
            if row > self.inbox.last {
                self.inbox.last = row;
                self.enqueue(Input::FromInbox { row, input: Box::new(input) }, None, None);
            }
        }
        if std::mem::take(&mut self.inbox.has_more) {
            self.on_inbox_ready();
        }
    }
}

impl TaskSpawner {
    /// Reads the rows after `last`, with the results of ended subagents. `window` (the model's, in bytes) and
    /// `batch` limit how much of a result the model gets.
    fn read_inbox(&self, last: u64, window: Option<u64>, batch: Vec<(CallId, usize)>) {
        let (parts, session, id) = (Arc::clone(&self.parts), self.session.clone(), self.id);
        let panic_guard = self.report_panic();
        self.tasks.spawn(async move {
            let _panic_guard = panic_guard;
            let context = InboxContext { parts, session: id, window, batch };
            let message = match context.read(last).await {
                Ok(inputs) => SessionInternalMsg::InboxRead(inputs),
                Err(error) => {
                    tracing::warn!(session = %id, %error, "the inbox cannot be read");
                    SessionInternalMsg::TaskFailed
                }
            };
            send(&session, message);
        });
    }
}

impl RuntimeParts {
    /// Notifies a session of a message in its inbox, or of a run that it has to begin. The session is opened if it is
    /// not live.
    pub(crate) fn notify_inbox(&self, session: SessionId) {
        if self.sessions.cast(SessionsMsg::Deliver(session, None, SessionMsg::InboxReady)).is_err() {
            tracing::debug!(%session, "the supervisor of sessions is gone");
        }
    }
}

/// The context of a read.
struct InboxContext {
    parts: Arc<RuntimeParts>,
    session: SessionId,
    /// Size of the model's context window in bytes.
    window: Option<u64>,
    /// Number of tasks that each open call has delegated.
    batch: Vec<(CallId, usize)>,
}

impl InboxContext {
    async fn read(&self, last: u64) -> Result<InboxInputs, ReadError> {
        let rows = self.parts.journal.rows().inbox(self.session).await?;
        let mut inputs = Vec::new();
        for InboxRow { id, item } in rows.into_iter().filter(|row| row.id > last) {
            inputs.push((id, self.to_input(&item).await?));
        }
        Ok(inputs)
    }

    async fn to_input(&self, item: &str) -> Result<Input, ReadError> {
        Ok(match InboxMessage::parse(item) {
            Ok(InboxMessage::Stop { run, reason }) => Input::Stop { run: Some(run), reason },
            Ok(InboxMessage::ChildEnded { call, child }) => {
                Input::ChildEnded(Arc::new(self.subagent_end(call, child).await?))
            }
            Err(error) => {
                tracing::warn!(session = %self.session, item, error, "a row of the inbox says nothing to this program");
                Input::EmptyInboxRow
            }
        })
    }

    /// The end of a subagent, with the result for its parent's model.
    async fn subagent_end(&self, call: CallId, child: SubagentRef) -> Result<ChildEnded, ReadError> {
        let row = self.parts.journal.rows().run(child.run).await?;
        let Some(row) = row else { return Ok(removed_subagent_end(call, child)) };
        let records = match run_records(&*self.parts.journal, &row).await {
            // The outcome is known from the index row all the same.
            Err(ReadError::Record { error, .. }) => {
                tracing::warn!(run = %row.id, %error, "a subagent's records cannot be read");
                Vec::new()
            }
            records => records?,
        };
        let tasks = self.batch.iter().find(|(of, _)| *of == call).map_or(1, |(_, tasks)| *tasks);
        let report = SubagentReport::new(&row, &records, max_answer_bytes(self.window, tasks));
        let artifact = match report.full_answer_if_truncated() {
            Some(answer) => self.write_answer(call, &row, answer).await,
            None => None,
        };
        Ok(report.end(call, artifact.as_ref()))
    }

    async fn write_answer(&self, call: CallId, row: &RunRow, answer: &str) -> Option<Artifact> {
        let attempt = row.parent.map_or(1, |parent| parent.n + 1);
        let name = ArtifactName { session: self.session, call, attempt };
        let artifacts = AttemptArtifacts::new(Arc::clone(&self.parts.executor.artifacts), name)
            .with_redactor(&self.parts.redactor);
        match artifacts.write(Bytes::from(answer.to_owned())).await {
            Ok(artifact) => Some(artifact),
            Err(error) => {
                tracing::warn!(%call, %error, "a subagent's answer is not kept whole");
                None
            }
        }
    }
}

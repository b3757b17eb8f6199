//! The inbox: messages of other sessions, read after a notification and recorded with their consequences.
//!
//! Invariant: only the append that consumes a row deletes it. So a row may be read twice, but takes effect once.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    model::{
        Artifact, CallId, ChildEnded, InboxMessage, Outcome, OutcomeCause, OutcomeDetail, Record, RunRow,
        SessionId, SubagentRef, Usage,
    },
    persistence::run_records,
    policy::{Bill, final_text},
    port::{ArtifactName, AttemptArtifacts, InboxRow, ReadError},
    session::{
        SessionDependencies, SessionInternalMsg,
        shell::SessionActorState,
        tasks::{TaskSpawner, send},
    },
    supervisor::SessionsMsg,
    turn::Input,
};

/// Most characters of all results of one call in its model's view, and the minimum for one result.
const MAX_RESULTS_CHARS: usize = 24_000;
const MIN_RESULT_CHARS: usize = 2_000;
/// The note beside the missing answer of a subagent that wrote none.
const NO_TEXT: &str = "the subagent ended before it had written any text; `reason` says why";
/// The results of one call take at most the window divided by this.
const WINDOW_DIVISOR: u64 = 10;

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
    /// The inbox has a new message.
    pub(super) fn on_inbox_ready(&mut self) {
        if self.inbox.is_reading {
            self.inbox.has_more = true;
            return;
        }
        self.inbox.is_reading = true;
        self.tasks.read_inbox(self.inbox.last, self.result_share_basis());
    }

    /// Enqueues the new rows, and reads again if a notification arrived meanwhile.
    pub(super) fn on_inbox_read(&mut self, heard: InboxInputs) {
        self.inbox.is_reading = false;
        for (row, input) in heard {
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
    /// Reads the rows after `last`, with the results of ended subagents. The window is that of the current run.
    fn read_inbox(&self, last: u64, (window, batch): (Option<u64>, Vec<(CallId, usize)>)) {
        let (wiring, session, id) = (Arc::clone(&self.wiring), self.session.clone(), self.id);
        let vigil = self.report_panic();
        self.tasks.spawn(async move {
            let _vigil = vigil;
            let room = InboxContext { wiring, session: id, window, batch };
            let said = match room.read(last).await {
                Ok(heard) => SessionInternalMsg::InboxRead(heard),
                Err(error) => {
                    tracing::warn!(session = %id, %error, "the inbox cannot be read");
                    SessionInternalMsg::WaitPanicked
                }
            };
            send(&session, said);
        });
    }
}

impl SessionDependencies {
    /// The session's inbox has a message, or the session must be opened.
    pub(crate) fn notify_inbox(&self, session: SessionId) {
        if self.sessions.cast(SessionsMsg::NotifyInbox(session)).is_err() {
            tracing::debug!(%session, "the supervisor of sessions is gone");
        }
    }
}

/// The context of a read.
struct InboxContext {
    wiring: Arc<SessionDependencies>,
    session: SessionId,
    /// Bytes that fit into the model's window.
    window: Option<u64>,
    /// Number of tasks that each open call has delegated.
    batch: Vec<(CallId, usize)>,
}

impl InboxContext {
    async fn read(&self, last: u64) -> Result<InboxInputs, ReadError> {
        let rows = self.wiring.journal.rows().inbox(self.session).await?;
        let mut heard = Vec::new();
        for InboxRow { id, item } in rows.into_iter().filter(|row| row.id > last) {
            heard.push((id, self.to_input(&item).await?));
        }
        Ok(heard)
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
        let row = self.wiring.journal.rows().run(child.run).await?;
        let Some(row) = row else { return Ok(removed_end(call, child)) };
        let records = match run_records(&*self.wiring.journal, &row).await {
            // The outcome is known from the index row all the same.
            Err(ReadError::Record { error, .. }) => {
                tracing::warn!(run = %row.id, %error, "a subagent's records cannot be read");
                Vec::new()
            }
            records => records?,
        };
        let ended = row.ended.clone().unwrap_or(OutcomeDetail { outcome: Outcome::Failed, cause: None });
        let told = self.result_json((call, &ended), &row, &records).await;
        let (iterations, usage) = (row.iterations, row.usage);
        Ok(ChildEnded { call, child, ended, result: told.to_string().into(), iterations, usage })
    }

    async fn result_json(
        &self,
        (call, ended): (CallId, &OutcomeDetail),
        row: &RunRow,
        records: &[Arc<Record>],
    ) -> Value {
        let mut bill = Bill::default();
        records.iter().for_each(|record| bill.take(record));
        let said = final_text(records, ended.outcome);
        let answer = said.as_ref().map_or("", |said| said.text.as_str());
        let shown = truncated(answer, self.max_result_bytes(call));
        let kept =
            if shown.len() < answer.len() { self.write_answer((call, row), answer).await } else { None };
        let mut told = json!({
            "outcome": ended.outcome.name(),
            "answer": shown,
            "artifacts": kept.iter().map(|kept| kept.handle.as_str()).collect::<Vec<_>>(),
            "iterations": row.iterations,
            "usage": {"input_tokens": row.usage.input_tokens, "output_tokens": row.usage.output_tokens},
            "cost_usd": bill.nano_usd().map(format_usd),
            "trace": {"session": row.session.to_string(), "run": row.id.to_string()},
        });
        if let Some(cause) = &ended.cause {
            told["reason"] = cause.to_string().into();
        }
        if let Some(said) = said {
            told["answer_source"] = said.source.name().into();
        } else {
            told["answer"] = Value::Null;
            told["note"] = NO_TEXT.into();
        }
        if let Some(kept) = kept {
            let note =
                format!("the answer is cut; all {} bytes: `read_artifact` {}", kept.bytes, kept.handle);
            told["note"] = note.into();
        }
        told
    }

    /// Most bytes of an answer: its share of the limit for its call and of the model's window.
    fn max_result_bytes(&self, call: CallId) -> usize {
        let batch = self.batch.iter().find(|(of, _)| *of == call).map_or(1, |(_, tasks)| (*tasks).max(1));
        let share = self.window.map(|window| usize::try_from(window / WINDOW_DIVISOR).unwrap_or(usize::MAX));
        let share = share.unwrap_or(usize::MAX);
        (MAX_RESULTS_CHARS.min(share) / batch).max(MIN_RESULT_CHARS)
    }

    async fn write_answer(&self, (call, row): (CallId, &RunRow), answer: &str) -> Option<Artifact> {
        let attempt = row.parent.map_or(1, |parent| parent.n + 1);
        let own = ArtifactName { session: self.session, call, attempt };
        let shelf = AttemptArtifacts::new(Arc::clone(&self.wiring.tools.artifacts), own);
        match shelf.write(Bytes::from(answer.to_owned())).await {
            Ok(artifact) => Some(artifact),
            Err(error) => {
                tracing::warn!(%call, %error, "a subagent's answer is not kept whole");
                None
            }
        }
    }
}

/// The end of a subagent whose session was removed from the store: its parent must not wait for it.
fn removed_end(call: CallId, child: SubagentRef) -> ChildEnded {
    let error = format!("session {} was removed from the store", child.session);
    let ended = OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::Unreadable { error });
    let told = json!({
        "outcome": ended.outcome.name(),
        "answer": "",
        "reason": ended.cause.as_ref().map(ToString::to_string),
        "trace": {"session": child.session.to_string(), "run": child.run.to_string()},
    });
    ChildEnded { call, child, ended, result: told.to_string().into(), iterations: 0, usage: Usage::default() }
}

/// The text, or its beginning and its end if it is longer than `most` bytes.
fn truncated(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most * 2 / 3)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 4)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
}

/// Nano-dollars formatted as dollars.
fn format_usd(nano: u64) -> String {
    crate::model::Dimension::Usd.display(nano).to_string()
}

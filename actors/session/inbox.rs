//! What others have to say to a session: rows of its inbox, read when it is rung, and taken in with what comes of them.
//!
//! Invariant: a row is deleted by the append that takes it in, and by nothing else; so it may be read twice, and is heard
//! once.

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
    port::{ArtifactName, AttemptArtifacts, InboxRow, Query, QueryRows, ReadError},
    session::{
        SessionDependencies, SessionInternalMsg,
        shell::SessionActorState,
        tasks::{TaskSpawner, send},
    },
    supervisor::SessionsMsg,
    turn::Input,
};

/// Characters of all results of one call that its model reads at most, and the least of one result.
const MAX_RESULTS_CHARS: usize = 24_000;
const MIN_RESULT_CHARS: usize = 2_000;
/// What stands beside the absent answer of a subagent that has written none.
const NO_TEXT: &str = "the subagent ended before it had written any text; `reason` says why";
/// A result takes at most this part of the model's window.
const WINDOW_DIVISOR: u64 = 10;

/// Whether the inbox is being read, and what was read of it.
#[derive(Debug, Default)]
pub(super) struct InboxReader {
    is_reading: bool,
    /// It was rung while it was being read.
    has_more: bool,
    /// The last row that was handed in.
    last: u64,
}

impl InboxReader {
    /// Whether nothing is being read.
    pub(super) const fn is_idle(&self) -> bool {
        !self.is_reading
    }
}

/// What a reading has come to: each row with what it says.
pub(crate) type InboxInputs = Vec<(u64, Input)>;

impl SessionActorState {
    /// Something waits in the inbox.
    pub(super) fn on_inbox_ready(&mut self) {
        if self.inbox.is_reading {
            self.inbox.has_more = true;
            return;
        }
        self.inbox.is_reading = true;
        self.tasks.read_inbox(self.inbox.last, self.result_share_basis());
    }

    /// It was read.
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
    /// Reads the rows behind `last`, and what those who have ended have left. `window` is that of the run under way.
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
    /// Something waits in the inbox of this session, or it is to be at work.
    pub(crate) fn notify_inbox(&self, session: SessionId) {
        if self.sessions.cast(SessionsMsg::NotifyInbox(session)).is_err() {
            tracing::debug!(%session, "the supervisor of sessions is gone");
        }
    }
}

/// What a reading needs to know.
struct InboxContext {
    wiring: Arc<SessionDependencies>,
    session: SessionId,
    /// Bytes that fit into the model's window.
    window: Option<u64>,
    /// How many tasks each open call has given away.
    batch: Vec<(CallId, usize)>,
}

impl InboxContext {
    async fn read(&self, last: u64) -> Result<InboxInputs, ReadError> {
        let QueryRows::Inbox(rows) = self.wiring.journal.read(Query::Inbox(self.session)).await? else {
            return Err(ReadError::Unavailable("the journal answered another question".into()));
        };
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

    /// How a subagent has ended, as its parent's model is to read it.
    async fn subagent_end(&self, call: CallId, child: SubagentRef) -> Result<ChildEnded, ReadError> {
        let rows = match self.wiring.journal.read(Query::Run(child.run)).await? {
            QueryRows::Runs(rows) => rows,
            QueryRows::Records(_)
            | QueryRows::Inbox(_)
            | QueryRows::Sessions(_)
            | QueryRows::Account(_)
            | QueryRows::Models(_) => {
                return Err(ReadError::Unavailable("the journal answered another question".into()));
            }
        };
        let Some(row) = rows.into_iter().next() else { return Ok(removed_end(call, child)) };
        let records = match run_records(&*self.wiring.journal, &row).await {
            // How it ended is known all the same.
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

    /// Bytes of an answer that are shown: its share of what all of its call may show, and of the model's window.
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

/// The end of a subagent whose session is not in the store any more: its parent must not wait for it.
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

/// The beginning and the end of a text that is too long.
fn truncated(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most * 2 / 3)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 4)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
}

/// Nano-dollars as people write dollars.
fn format_usd(nano: u64) -> String {
    crate::model::Dimension::Usd.display(nano).to_string()
}

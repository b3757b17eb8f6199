//! What others have to say to a session: rows of its inbox, read when it is rung, and taken in with what comes of them.
//!
//! Invariant: a row is deleted by the append that takes it in, and by nothing else; so it may be read twice, and is heard
//! once.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    model::{
        Artifact, CallId, Cause, Child, ChildEnded, Ended, Inbox, Outcome, Record, RunRow, SessionId, Usage,
    },
    persistence::records_of,
    policy::{Bill, said},
    port::{ArtifactName, InboxRow, Read, ReadError, Rows, Shelf},
    session::{
        Inner, Wiring,
        calls::{Tasks, tell},
        shell::State,
    },
    supervisor::SessionsMsg,
    turn::Input,
};

/// Characters of all results of one call that its model reads at most, and the least of one result.
const SHOWN: usize = 24_000;
const LEAST: usize = 2_000;
/// What stands beside the absent answer of a subagent that has written none.
const NO_TEXT: &str = "the subagent ended before it had written any text; `reason` says why";
/// A result takes at most this part of the model's window.
const SHARE: u64 = 10;

/// Whether the inbox is being read, and what was read of it.
#[derive(Debug, Default)]
pub(super) struct Listening {
    is_reading: bool,
    /// It was rung while it was being read.
    is_rung: bool,
    /// The last row that was handed in.
    last: u64,
}

impl Listening {
    /// Whether nothing is being read.
    pub(super) const fn is_quiet(&self) -> bool {
        !self.is_reading
    }
}

/// What a reading has come to: each row with what it says.
pub(crate) type Heard = Vec<(u64, Input)>;

impl State {
    /// Something waits in the inbox.
    pub(super) fn rung(&mut self) {
        if self.listening.is_reading {
            self.listening.is_rung = true;
            return;
        }
        self.listening.is_reading = true;
        self.tasks.read_inbox(self.listening.last, self.shares());
    }

    /// It was read.
    pub(super) fn heard(&mut self, heard: Heard) {
        self.listening.is_reading = false;
        for (row, input) in heard {
            if row > self.listening.last {
                self.listening.last = row;
                self.wait(Input::FromInbox { row, input: Box::new(input) }, None, None);
            }
        }
        if std::mem::take(&mut self.listening.is_rung) {
            self.rung();
        }
    }
}

impl Tasks {
    /// Reads the rows behind `last`, and what those who have ended have left. `window` is that of the run under way.
    fn read_inbox(&self, last: u64, (window, batch): (Option<u64>, Vec<(CallId, usize)>)) {
        let (wiring, session, id) = (Arc::clone(&self.wiring), self.session.clone(), self.id);
        let vigil = self.vigil();
        self.tasks.spawn(async move {
            let _vigil = vigil;
            let room = Room { wiring, session: id, window, batch };
            let said = match room.read(last).await {
                Ok(heard) => Inner::Heard(heard),
                Err(error) => {
                    tracing::warn!(session = %id, %error, "the inbox cannot be read");
                    Inner::Broken
                }
            };
            tell(&session, said);
        });
    }
}

impl Wiring {
    /// Something waits in the inbox of this session, or it is to be at work.
    pub(crate) fn ring(&self, session: SessionId) {
        if self.sessions.cast(SessionsMsg::Ring(session)).is_err() {
            tracing::debug!(%session, "the supervisor of sessions is gone");
        }
    }
}

/// What a reading needs to know.
struct Room {
    wiring: Arc<Wiring>,
    session: SessionId,
    /// Bytes that fit into the model's window.
    window: Option<u64>,
    /// How many tasks each open call has given away.
    batch: Vec<(CallId, usize)>,
}

impl Room {
    async fn read(&self, last: u64) -> Result<Heard, ReadError> {
        let Rows::Inbox(rows) = self.wiring.journal.read(Read::Inbox(self.session)).await? else {
            return Err(ReadError::Unavailable("the journal answered another question".into()));
        };
        let mut heard = Vec::new();
        for InboxRow { id, item } in rows.into_iter().filter(|row| row.id > last) {
            heard.push((id, self.says(&item).await?));
        }
        Ok(heard)
    }

    async fn says(&self, item: &str) -> Result<Input, ReadError> {
        Ok(match Inbox::read(item) {
            Ok(Inbox::Stop { run, reason }) => Input::Stop { run: Some(run), reason },
            Ok(Inbox::ChildEnded { call, child }) => {
                Input::ChildEnded(Arc::new(self.ended(call, child).await?))
            }
            Err(error) => {
                tracing::warn!(session = %self.session, item, error, "a row of the inbox says nothing to this program");
                Input::EmptyInboxRow
            }
        })
    }

    /// How a subagent has ended, as its parent's model is to read it.
    async fn ended(&self, call: CallId, child: Child) -> Result<ChildEnded, ReadError> {
        let rows = match self.wiring.journal.read(Read::Run(child.run)).await? {
            Rows::Runs(rows) => rows,
            Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Account(_) | Rows::Models(_) => {
                return Err(ReadError::Unavailable("the journal answered another question".into()));
            }
        };
        let Some(row) = rows.into_iter().next() else { return Ok(removed(call, child)) };
        let records = match records_of(&*self.wiring.journal, &row).await {
            // How it ended is known all the same.
            Err(ReadError::Record { error, .. }) => {
                tracing::warn!(run = %row.id, %error, "a subagent's records cannot be read");
                Vec::new()
            }
            records => records?,
        };
        let ended = row.ended.clone().unwrap_or(Ended { outcome: Outcome::Failed, cause: None });
        let told = self.told((call, &ended), &row, &records).await;
        let (iterations, usage) = (row.iterations, row.usage);
        Ok(ChildEnded { call, child, ended, told: told.to_string().into(), iterations, usage })
    }

    async fn told(&self, (call, ended): (CallId, &Ended), row: &RunRow, records: &[Arc<Record>]) -> Value {
        let mut bill = Bill::default();
        records.iter().for_each(|record| bill.take(record));
        let said = said(records, ended.outcome);
        let answer = said.as_ref().map_or("", |said| said.text.as_str());
        let shown = visible(answer, self.most(call));
        let kept = if shown.len() < answer.len() { self.keep((call, row), answer).await } else { None };
        let mut told = json!({
            "outcome": ended.outcome.name(),
            "answer": shown,
            "artifacts": kept.iter().map(|kept| kept.handle.as_str()).collect::<Vec<_>>(),
            "iterations": row.iterations,
            "usage": {"input_tokens": row.usage.input_tokens, "output_tokens": row.usage.output_tokens},
            "cost_usd": bill.nano_usd().map(dollars),
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
    fn most(&self, call: CallId) -> usize {
        let batch = self.batch.iter().find(|(of, _)| *of == call).map_or(1, |(_, tasks)| (*tasks).max(1));
        let share = self.window.map(|window| usize::try_from(window / SHARE).unwrap_or(usize::MAX));
        let share = share.unwrap_or(usize::MAX);
        (SHOWN.min(share) / batch).max(LEAST)
    }

    async fn keep(&self, (call, row): (CallId, &RunRow), answer: &str) -> Option<Artifact> {
        let attempt = row.parent.map_or(1, |parent| parent.n + 1);
        let own = ArtifactName { session: self.session, call, attempt };
        let shelf = Shelf::new(Arc::clone(&self.wiring.tools.artifacts), own);
        match shelf.keep(Bytes::from(answer.to_owned())).await {
            Ok(artifact) => Some(artifact),
            Err(error) => {
                tracing::warn!(%call, %error, "a subagent's answer is not kept whole");
                None
            }
        }
    }
}

/// The end of a subagent whose session is not in the store any more: its parent must not wait for it.
fn removed(call: CallId, child: Child) -> ChildEnded {
    let error = format!("session {} was removed from the store", child.session);
    let ended = Ended::because(Outcome::Failed, Cause::Unreadable { error });
    let told = json!({
        "outcome": ended.outcome.name(),
        "answer": "",
        "reason": ended.cause.as_ref().map(ToString::to_string),
        "trace": {"session": child.session.to_string(), "run": child.run.to_string()},
    });
    ChildEnded { call, child, ended, told: told.to_string().into(), iterations: 0, usage: Usage::default() }
}

/// The beginning and the end of a text that is too long.
fn visible(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most * 2 / 3)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 4)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
}

/// Nano-dollars as people write dollars.
fn dollars(nano: u64) -> String {
    crate::model::Dimension::Usd.shown(nano).to_string()
}

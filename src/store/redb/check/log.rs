//! Checks all rows of the log in one pass, in the order of time; then the tails and marks of the sessions. Collects the
//! facts with which `index.rs` compares the other rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hermod_actors::model::{Body, OutcomeDetail, RunId, Seq, SessionId, decode};

use super::pass::CheckPass;
use crate::store::redb::{
    damage::Damage,
    error::Result,
    log::{LogRow, SessionTail, session_of_row},
    tables::{LOG, MARKS, TAILS, TOMBSTONES, for_each_row, open_existing},
};

/// Assumed bytes of a row of numbers.
pub(super) const NUMBERS_ROW_BYTES: usize = 32;

/// Facts from the records that index rows must agree with.
#[derive(Default)]
pub(super) struct RecordFacts {
    pub(super) sessions: BTreeMap<SessionId, CheckedSession>,
    pub(super) runs: BTreeMap<RunId, CheckedRun>,
}

/// A session, as far as its rows were read.
#[derive(Default)]
pub(super) struct CheckedSession {
    tail: SessionTail,
    /// The session's key.
    pub(super) key: Option<Arc<str>>,
    /// Whether one of its rows or records is damaged; its runs are then not all known.
    pub(super) damaged: bool,
}

/// A run, by the records that accepted and ended it.
pub(super) struct CheckedRun {
    pub(super) session: SessionId,
    pub(super) first: Seq,
    pub(super) ended: Option<(Seq, OutcomeDetail)>,
}

impl CheckPass<'_> {
    /// Checks the log, and collects the facts for the other checks.
    pub(super) fn check_log(&mut self) -> Result<()> {
        self.rows()?;
        self.ends()?;
        self.marks()
    }

    fn rows(&mut self) -> Result<()> {
        let txn = self.txn;
        let tombstones = open_existing(txn, TOMBSTONES)?;
        for_each_row(txn, LOG, |position, row| {
            self.count_bytes(row.len())?;
            self.checked.counts.rows += 1;
            let session = match session_of_row(row) {
                Ok(session) => session,
                Err(why) => {
                    self.checked.add_damage(Damage::store("appends", format!("row {position}: {why}")));
                    return Ok(());
                }
            };
            // A removed session whose rows are not all removed yet; gc removes the rest.
            if let Some(tombstones) = &tombstones
                && tombstones.get(session.bits())?.is_some()
            {
                return Ok(());
            }
            let mut state = self.facts.sessions.remove(&session).unwrap_or_default();
            match LogRow::parse(session, position, row) {
                Ok(row) => self.row(session, &mut state, position, &row),
                Err(why) => {
                    state.damaged = true;
                    self.checked.add_damage(Damage::of(session, "appends", why));
                }
            }
            self.facts.sessions.insert(session, state);
            Ok(())
        })
    }

    fn row(&mut self, session: SessionId, state: &mut CheckedSession, position: u64, row: &LogRow<'_>) {
        let expected =
            SessionTail { position: row.previous, last: row.first.saturating_sub(1), ..state.tail };
        if expected != state.tail {
            let what = format!(
                "row {position} goes on after record {} in row {}, and the one before it ends with record {} in row {}",
                expected.last, expected.position, state.tail.last, state.tail.position
            );
            state.damaged = true;
            self.checked.add_damage(Damage::of(session, "appends", what).at(row.first));
        }
        state.tail = SessionTail { position, last: row.first.saturating_sub(1), ..state.tail };
        for (seq, stored) in row.records() {
            self.checked.counts.records += 1;
            state.tail.last = seq;
            if let Err(why) = stored.and_then(|stored| self.record(session, state, seq, stored)) {
                state.damaged = true;
                self.checked.add_damage(Damage::of(session, "appends", why).at(seq));
            }
        }
        if state.tail.grow() {
            self.marks.insert((session.bits(), state.tail.last, position));
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds have nothing to compare")]
    fn record(
        &mut self,
        session: SessionId,
        state: &mut CheckedSession,
        seq: Seq,
        stored: &[u8],
    ) -> Result<(), String> {
        let value = self.read_value(stored)?;
        let record = decode(&value).map_err(|error| error.to_string())?;
        match &record.body {
            Body::SessionOpened(opened) => state.key = Some(Arc::clone(&opened.key)),
            Body::RunAccepted(accepted) => {
                let run = CheckedRun { session, first: seq, ended: None };
                if self.facts.runs.insert(accepted.run, run).is_some() {
                    return Err(format!("run {} was accepted before", accepted.run));
                }
                accepted.images.iter().try_for_each(|image| self.check_artifact(session, &image.artifact))?;
            }
            Body::RunEnded(ended) => {
                let run = self.facts.runs.get_mut(&ended.run).filter(|run| run.session == session);
                match run {
                    Some(CheckedRun { ended: Some((before, _)), .. }) => {
                        return Err(format!("run {} has ended with record {before}", ended.run));
                    }
                    Some(run) => run.ended = Some((seq, ended.ended.clone())),
                    None if state.damaged => {}
                    None => return Err(format!("run {} ends and was never accepted", ended.run)),
                }
            }
            Body::RunReopened(reopened) => self.reopened(session, state, reopened.run)?,
            Body::CallEnded(ended) => {
                let images = ended.end.images.iter().map(|image| &image.artifact);
                ended
                    .end
                    .artifact
                    .iter()
                    .chain(images)
                    .chain(ended.end.attachments.iter().map(|attachment| &attachment.artifact))
                    .try_for_each(|artifact| self.check_artifact(session, artifact))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Each leg has an outcome of its own: a reopened run has none again.
    fn reopened(&mut self, session: SessionId, state: &CheckedSession, run: RunId) -> Result<(), String> {
        let known = self.facts.runs.get_mut(&run).filter(|known| known.session == session);
        match known.map(|known| known.ended.take()) {
            Some(Some(_)) => Ok(()),
            Some(None) => Err(format!("run {run} goes on and had not ended")),
            None if state.damaged => Ok(()),
            None => Err(format!("run {run} goes on and was never accepted")),
        }
    }

    /// Compares the stored tails with the ends that the rows show.
    fn ends(&mut self) -> Result<()> {
        let mut unseen: BTreeSet<SessionId> = self.facts.sessions.keys().copied().collect();
        self.checked.counts.sessions = unseen.len() as u64;
        for_each_row(self.txn, TAILS, |id, tail| {
            self.count_bytes(NUMBERS_ROW_BYTES)?;
            let (session, tail) = (SessionId::from_bits(id), SessionTail::of(tail));
            unseen.remove(&session);
            let found = self.facts.sessions.get(&session).map_or(SessionTail::default(), |state| state.tail);
            if found != tail {
                let what = format!(
                    "it should end with record {} in row {}, and does with record {} in row {}",
                    tail.last, tail.position, found.last, found.position
                );
                self.checked.add_damage(Damage::of(session, "tails", what).at(tail.last));
            }
            Ok(())
        })?;
        for session in unseen {
            self.checked.add_damage(Damage::of(session, "tails", "nothing says where it ends"));
        }
        Ok(())
    }

    /// Compares the stored marks with those that the rows require.
    fn marks(&mut self) -> Result<()> {
        let mut unseen = std::mem::take(&mut self.marks);
        for_each_row(self.txn, MARKS, |(session, last), position| {
            self.count_bytes(NUMBERS_ROW_BYTES)?;
            if !unseen.remove(&(session, last, position)) {
                let what = format!(
                    "a mark names row {position}, where record {last} does not end a row to be marked"
                );
                self.checked.add_damage(Damage::of(SessionId::from_bits(session), "marks", what).at(last));
            }
            Ok(())
        })?;
        for (session, last, position) in unseen {
            let what = format!("row {position} is not marked");
            self.checked.add_damage(Damage::of(SessionId::from_bits(session), "marks", what).at(last));
        }
        Ok(())
    }
}

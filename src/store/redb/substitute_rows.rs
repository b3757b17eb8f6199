//! Substitutes for unreadable index rows, made from other tables. A lost row thus hides no other one, its run is found
//! and ended, and its session can be set aside.

use hermod_actors::model::{
    Outcome, OutcomeCause, OutcomeDetail, RunId, RunRow, RunState, SessionId, SessionRow, Timestamp,
};
use redb::ReadableTable;

use super::{
    log::SessionTail,
    read::{Result, SnapshotReader},
    tables::{OPEN_RUNS, RUNS_BY_SESSION, SESSION_KEYS, TAILS},
};

impl SnapshotReader {
    /// A substitute for a run's lost row; `error` says why it is lost. Unfinished if the index of open runs names the
    /// run, otherwise ended as unreadable.
    pub(super) fn lost_run(&mut self, id: u128, error: String) -> Result<RunRow> {
        let (run, session) = (RunId::from_bits(id), self.session_of(id)?);
        let is_open = self.open(OPEN_RUNS)?.get(id)?.is_some();
        let agent = self.session(session)?.map(|row| row.agent).unwrap_or_default();
        let tail = SessionTail::read(&self.open(TAILS)?, session)?.unwrap_or_default();
        let ended = (!is_open)
            .then(|| OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::Unreadable { error }));
        Ok(RunRow {
            state: if is_open { RunState::Running } else { RunState::Ended },
            ended,
            last: tail.last.max(1),
            agent,
            ..RunRow::new(run, session, ulid_time(id), 1)
        })
    }

    /// A substitute for a session's lost row.
    pub(super) fn lost_session(&mut self, id: u128) -> Result<SessionRow> {
        let session = SessionId::from_bits(id);
        let mut key = session.to_string();
        for row in self.open(SESSION_KEYS)?.iter()? {
            let (known, owner) = row?;
            if owner.value() == id {
                known.value().clone_into(&mut key);
            }
        }
        Ok(SessionRow::new(session, key, ulid_time(id)))
    }

    /// The session that lists the run; the id 0 if none does.
    fn session_of(&mut self, run: u128) -> Result<SessionId> {
        for row in self.open(RUNS_BY_SESSION)?.iter()? {
            let (session, listed) = row?.0.value();
            if listed == run {
                return Ok(SessionId::from_bits(session));
            }
        }
        Ok(SessionId::from_bits(0))
    }
}

/// The time in a ULID.
fn ulid_time(id: u128) -> Timestamp {
    Timestamp(i64::try_from(id >> 80).unwrap_or(i64::MAX))
}

use std::fmt;

use hermod_actors::model::{Seq, SessionId};

/// What is wrong in a store, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The table, or the folder.
    pub table: &'static str,
    /// The session that it concerns, and no other one; `None` if it concerns the store.
    pub session: Option<SessionId>,
    /// The record.
    pub seq: Option<Seq>,
    /// What is wrong.
    pub what: String,
}

impl Damage {
    /// Damage of the store as a whole.
    pub(super) fn store(table: &'static str, what: impl Into<String>) -> Self {
        Self { table, session: None, seq: None, what: what.into() }
    }

    /// Damage of one session.
    pub(super) fn of(session: SessionId, table: &'static str, what: impl Into<String>) -> Self {
        Self { session: Some(session), ..Self::store(table, what) }
    }

    /// The same, at this record.
    pub(super) fn at(self, seq: Seq) -> Self {
        Self { seq: Some(seq), ..self }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(session) = self.session {
            write!(f, "session {session}, ")?;
        }
        if let Some(seq) = self.seq {
            write!(f, "record {seq}, ")?;
        }
        write!(f, "{}: {}", self.table, self.what)
    }
}

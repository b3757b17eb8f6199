use std::{borrow::Cow, fmt};

use hermod_actors::model::{Seq, SessionId};
use serde::{Deserialize, Serialize};

/// What is wrong in a store, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Damage {
    /// The table, or the path of a file in the state directory and in a backup.
    pub table: Cow<'static, str>,
    /// The session that it concerns, and no other one; `None` if it concerns the store.
    pub session: Option<SessionId>,
    /// The record.
    pub seq: Option<Seq>,
    /// What is wrong.
    pub what: String,
}

impl Damage {
    /// Damage of a file that the store refers to, or that is the store.
    pub fn file(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::store(Cow::Owned(path.into()), what)
    }

    /// Damage of the store as a whole.
    pub(super) fn store(table: impl Into<Cow<'static, str>>, what: impl Into<String>) -> Self {
        Self { table: table.into(), session: None, seq: None, what: what.into() }
    }

    /// Damage of one session.
    pub(super) fn of(session: SessionId, table: &'static str, what: impl Into<String>) -> Self {
        Self { session: Some(session), ..Self::store(table, what) }
    }

    /// The same, at this record.
    pub(super) fn at(self, seq: Seq) -> Self {
        Self { seq: Some(seq), ..self }
    }

    /// Whether both are at one place, which is the same in every copy of a store; versions may word differently what is wrong
    /// there.
    pub fn is_same_position(&self, other: &Self) -> bool {
        (&self.table, self.session, self.seq) == (&other.table, other.session, other.seq)
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

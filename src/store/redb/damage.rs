//! Damaged places of a store, with their text for the user.

use std::{borrow::Cow, fmt};

use hermod_actors::model::{Seq, SessionId};
use serde::{Deserialize, Serialize};

/// A damaged place of a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Damage {
    /// The table, or the path of a file in the state directory or in a backup.
    pub table: Cow<'static, str>,
    /// The only session that is affected; `None` if the damage affects the store.
    pub session: Option<SessionId>,
    /// The record, if one is affected.
    pub seq: Option<Seq>,
    /// What is wrong, as text.
    pub what: String,
}

impl Damage {
    /// Damage of a file that the store refers to, or of the store's file.
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

    /// The same damage, at this record.
    pub(super) fn at(self, seq: Seq) -> Self {
        Self { seq: Some(seq), ..self }
    }

    /// Whether both are at one position, which is the same in every copy of a store. Ignores the text, which may differ
    /// between versions.
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

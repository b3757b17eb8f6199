//! Views of a session, in a list and with its runs.

use hermod_actors::model::{SessionId, SessionRow, Timestamp};
use serde::{Deserialize, Serialize};

use super::{encoding, run::RunView};

/// A session: `{id, key, opened_at, quarantined}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The session's id.
    pub id: SessionId,
    /// The caller's session key.
    pub key: String,
    /// When the session was first opened.
    #[serde(with = "encoding::time")]
    pub opened_at: Timestamp,
    /// Why this version cannot read the journal; `None` if it can.
    pub quarantined: Option<String>,
}

impl SessionView {
    /// A session from its row.
    pub fn new(row: &SessionRow, quarantined: Option<String>) -> Self {
        Self { id: row.id, key: row.key.to_string(), opened_at: row.opened_at, quarantined }
    }
}

/// A session and its runs: `{…of the session, runs, todo}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionDetailView {
    /// The session.
    #[serde(flatten)]
    pub session: SessionView,
    /// The session's newest runs.
    pub runs: Vec<RunView>,
    /// The model's to-do list, one item per line; `None` if it is empty or cannot be read.
    pub todo: Option<String>,
}

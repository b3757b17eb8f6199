//! View of what a repair of the store has changed.

use std::path::PathBuf;

use hermod_actors::model::SessionId;
use serde::Serialize;

use crate::store::redb::{CheckReport, Damage, RepairReport};

/// What a repair has changed, or would change: `{dry_run, set_aside, mended, strays, damages, more}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreRepairView {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// The sessions set aside.
    pub set_aside: Vec<SetAsideView>,
    /// The retained sessions whose rows were put right.
    pub mended: Vec<SessionId>,
    /// The damaged rows that belong to no retained session; `None` if there are none.
    pub strays: Option<RowsFileView>,
    /// The damaged places that remain.
    pub damages: Vec<Damage>,
    /// Number of further damaged places.
    pub more: u64,
}

/// A session that was moved out of the store: `{file, rows, session}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAsideView {
    /// The file with its rows.
    #[serde(flatten)]
    pub rows: RowsFileView,
    /// The session.
    pub session: SessionId,
}

/// Rows that were moved into a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowsFileView {
    /// The file of JSON lines.
    pub file: String,
    /// Number of rows in it.
    pub rows: u64,
}

impl StoreRepairView {
    /// The changes of a repair, and the check after it.
    pub fn new(dry_run: bool, repaired: RepairReport, remaining: CheckReport) -> Self {
        let rows_file =
            |(path, rows): (PathBuf, u64)| RowsFileView { file: path.display().to_string(), rows };
        let set_aside = repaired.sessions.into_iter();
        Self {
            dry_run,
            set_aside: set_aside
                .map(|(session, rows)| SetAsideView { rows: rows_file(rows), session })
                .collect(),
            mended: repaired.mended,
            strays: repaired.strays.map(rows_file),
            damages: remaining.damages,
            more: remaining.more_damages,
        }
    }
}

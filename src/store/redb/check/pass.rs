//! One pass of a check: its report ([`CheckReport`]), its pace, and how it finds the blobs and artifacts that rows
//! name.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io, mem,
};

use hermod_actors::{
    model::{Artifact, RunId, Seq, SessionId},
    port::{ArtifactName, Presence},
};
use redb::ReadTransaction;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::log::RecordFacts;
use crate::store::redb::{
    blobs::{BlobError, Blobs},
    damage::Damage,
    error::{Result, ThrottleFn},
};

/// Maximum number of damaged places listed in a report; further ones are only counted.
const MAX_DAMAGES: usize = 1_000;
/// Bytes between two calls of the throttle callback.
const BATCH_BYTES: usize = 1 << 20;

/// The result of a check.
#[derive(Debug, Default, Serialize)]
pub struct CheckReport {
    /// Number of rows that were checked, by kind.
    #[serde(rename = "checked")]
    pub counts: StoreCounts,
    /// The damaged places, at most 1,000.
    pub damages: Vec<Damage>,
    /// Number of further damaged places.
    #[serde(rename = "more")]
    pub more_damages: u64,
    /// The blobs that rows refer to, by path in the folder of blobs, each with its size in bytes.
    #[serde(skip)]
    pub blobs: BTreeMap<String, u64>,
    /// The artifacts that records name.
    #[serde(skip)]
    pub artifacts: BTreeMap<ArtifactName, Artifact>,
}

/// Number of rows and references that a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreCounts {
    /// Bytes of the store's file.
    pub bytes: u64,
    /// Sessions with records.
    pub sessions: u64,
    /// Records.
    pub records: u64,
    /// Rows of the log; each has one or more records.
    pub rows: u64,
    /// Rows of runs.
    pub runs: u64,
    /// Runs that have not ended.
    pub open_runs: u64,
    /// Budget accounts.
    pub accounts: u64,
    /// Unread inbox messages.
    pub inbox: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// References to blobs.
    pub blobs: u64,
    /// References to artifacts.
    pub artifacts: u64,
}

impl CheckReport {
    pub(super) fn add_damage(&mut self, damage: Damage) {
        if self.damages.len() < MAX_DAMAGES {
            self.damages.push(damage);
        } else {
            self.more_damages += 1;
        }
    }
}

/// Looks up an artifact that a record of a session names.
pub type ArtifactLookup<'a> = &'a dyn Fn(SessionId, &Artifact) -> io::Result<Presence>;

/// Where a check finds the files that a store refers to.
#[derive(Clone, Copy)]
pub(in crate::store::redb) struct ReferencedFiles<'b> {
    pub(in crate::store::redb) blobs: &'b Blobs,
    /// `None` if the caller checks the artifacts itself.
    pub(in crate::store::redb) artifacts: Option<ArtifactLookup<'b>>,
}

/// One pass over all rows.
pub(super) struct CheckPass<'p> {
    pub(super) txn: &'p ReadTransaction,
    pub(super) checked: CheckReport,
    pub(super) references: ReferencedFiles<'p>,
    pub(super) throttle: &'p mut ThrottleFn<'p>,
    /// Bytes since the last call of `throttle`.
    pub(super) uncounted_bytes: usize,
    pub(super) facts: RecordFacts,
    /// The marks that must exist: session, last record, and row.
    pub(super) marks: BTreeSet<(u128, Seq, u64)>,
    /// The session of each run, by the table of runs by session.
    pub(super) owners: BTreeMap<RunId, SessionId>,
}

impl CheckPass<'_> {
    /// Counts the bytes of a checked row, and calls the throttle callback after each MiB. Fails if the callback stops
    /// the check.
    pub(super) fn count_bytes(&mut self, bytes: usize) -> Result<()> {
        self.uncounted_bytes += bytes;
        if self.uncounted_bytes < BATCH_BYTES {
            Ok(())
        } else {
            Ok((self.throttle)(mem::take(&mut self.uncounted_bytes))?)
        }
    }

    /// Ends the check.
    pub(super) fn finish(self) -> Result<CheckReport> {
        (self.throttle)(self.uncounted_bytes)?;
        Ok(self.checked)
    }

    /// Resolves a stored value, and lists its blob, if it has one.
    pub(super) fn read_value<'v>(&mut self, stored: &'v [u8]) -> Result<Cow<'v, [u8]>, String> {
        self.checked.counts.blobs += u64::from(Blobs::is_spilled(stored));
        if let Some((path, bytes)) = Blobs::path_and_bytes(stored) {
            self.uncounted_bytes =
                self.uncounted_bytes.saturating_add(usize::try_from(bytes).unwrap_or(BATCH_BYTES));
            self.checked.blobs.insert(path, bytes);
        }
        self.references.blobs.resolve(stored).map_err(BlobError::into_text)
    }

    /// Resolves a stored value and parses it as JSON.
    pub(super) fn read_json<T: DeserializeOwned>(&mut self, stored: &[u8]) -> Result<T, String> {
        serde_json::from_slice(&self.read_value(stored)?).map_err(|error| error.to_string())
    }

    /// Lists an artifact that a record of this session names, and looks it up.
    pub(super) fn check_artifact(&mut self, session: SessionId, artifact: &Artifact) -> Result<(), String> {
        self.checked.counts.artifacts += 1;
        let name = &artifact.handle;
        let Some(parsed) = ArtifactName::from_handle(session, name) else {
            return Err(format!("artifact {name} has a name that none can have"));
        };
        self.checked.artifacts.insert(parsed, artifact.clone());
        let Some(look_up) = self.references.artifacts else { return Ok(()) };
        match look_up(session, artifact) {
            Ok(Presence::Present(bytes)) if bytes != artifact.bytes => {
                Err(format!("artifact {name} has {bytes} bytes, not {}", artifact.bytes))
            }
            Ok(Presence::Present(_) | Presence::Removed(_)) => Ok(()),
            Ok(Presence::Altered) => {
                Err(format!("artifact {name} was altered: its content is not the one that was kept"))
            }
            Ok(Presence::Missing) => Err(format!("artifact {name} is missing")),
            Err(error) => Err(format!("artifact {name}: {error}")),
        }
    }
}

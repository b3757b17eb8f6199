//! Care for the state directory, as it is asked for and told.

use std::{collections::BTreeMap, fmt::Debug};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::error::RequestError;

/// Whoever can look after all that lies in the state directory, because the store is open in this process.
pub trait MaintenanceService: Debug + Send + Sync + 'static {
    /// Removes what is not needed any more. Goes on when the future is dropped.
    fn gc(&self, sweep: GcRequest) -> BoxFuture<'static, Result<GcReport, RequestError>>;

    /// What takes up how much room.
    fn footprint(&self) -> BoxFuture<'static, Result<Footprint, RequestError>>;
}

/// What is to be removed; what nothing refers to goes in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GcRequest {
    /// Sessions whose last record is older than so many milliseconds; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions_ms: Option<u64>,
    /// Artifacts of runs that ended longer ago than so many milliseconds; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts_ms: Option<u64>,
    /// Whether it is only said what would go.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// Whether it was only looked at.
    pub dry_run: bool,
    /// What became of each class of things.
    pub classes: Vec<GcClassReport>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The longest time for which runs had to wait for it, in microseconds.
    pub longest_wait_us: u64,
}

/// One class of things.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GcClassReport {
    /// `sessions`, `keys`, `artifacts`, `blobs`, `scripts`, `spool` or `leftovers`.
    pub class: String,
    /// How many there were.
    pub seen: u64,
    /// How many were removed, or would be.
    pub removed: u64,
    /// The bytes of those.
    pub bytes: u64,
    /// How many stay, by the reason.
    pub kept: BTreeMap<String, u64>,
}

/// What takes up how much room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// The state directory.
    pub state: String,
    /// By class: `store`, `blobs`, `artifacts`, `spool`, `scripts`, `replaced`, `other`.
    pub classes: Vec<ClassUsage>,
    /// What is in the store's file.
    pub store: StoreUsage,
}

/// What one class takes up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassUsage {
    /// Its name.
    pub class: String,
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

/// What is in the store's file; the rest of it is the engine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreUsage {
    /// Bytes of records.
    pub records: u64,
    /// Bytes of all other rows.
    pub index: u64,
    /// Bytes that hold nothing, about: what is written next goes there.
    pub free: u64,
    /// Sessions.
    pub sessions: u64,
    /// Runs.
    pub runs: u64,
    /// Those that have not ended.
    pub unfinished: u64,
}

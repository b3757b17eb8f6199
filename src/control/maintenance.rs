//! Garbage collection and disk usage of the state directory: the trait by which the owner does both, and their requests
//! and reports. `src/maintenance` implements it.

use std::{collections::BTreeMap, fmt::Debug};

use futures::future::BoxFuture;
use hermod_actors::model::SessionId;
use serde::{Deserialize, Serialize};

use super::error::RequestError;
use crate::view::StoreFootprint;

/// Garbage collection and disk usage of the state directory, in the process that has the store open.
pub trait MaintenanceService: Debug + Send + Sync + 'static {
    /// Removes what is no longer needed. Continues when the future is dropped.
    fn gc(&self, request: GcRequest) -> BoxFuture<'static, Result<GcReport, RequestError>>;

    /// Removes a session and those of its subagents. Continues when the future is dropped.
    fn remove_session(&self, session: SessionId) -> BoxFuture<'static, Result<SessionRemoval, RequestError>>;

    /// The disk usage by class.
    fn footprint(&self) -> BoxFuture<'static, Result<Footprint, RequestError>>;
}

/// What became of a session that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRemoval {
    /// It is removed, durably.
    Removed,
    /// It is not removed: an actor has this session open, which is the one or of a subagent.
    Open(SessionId),
    /// It is not removed, for this reason.
    Retained(&'static str),
}

/// Age limits of a garbage collection. Unreferenced data is removed in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GcRequest {
    /// Removes sessions whose last record is older than this, in milliseconds; absent removes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions_ms: Option<u64>,
    /// Removes artifacts of runs that ended longer ago than this, in milliseconds; absent removes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts_ms: Option<u64>,
    /// True only reports what would be removed.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of a garbage collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// True if nothing was removed, only counted.
    pub dry_run: bool,
    /// The result for each class.
    pub classes: Vec<GcClassReport>,
    /// Duration in milliseconds.
    pub took_ms: u64,
    /// The longest time that runs waited for it, in microseconds.
    pub longest_wait_us: u64,
}

/// The result for one class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GcClassReport {
    /// `sessions`, `keys`, `artifacts`, `blobs`, `scripts`, `spool` or `leftovers`.
    pub class: String,
    /// Number found.
    pub seen: u64,
    /// Number removed, or that would be.
    pub removed: u64,
    /// Bytes of the removed ones.
    pub bytes: u64,
    /// Number retained, by reason.
    pub kept: BTreeMap<String, u64>,
}

/// The disk usage of the state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Path of the state directory.
    pub state: String,
    /// By class: `store`, `blobs`, `artifacts`, `spool`, `scripts`, `memories`, `replaced`, `other`.
    pub classes: Vec<ClassUsage>,
    /// Usage within the store's file; the remainder is the storage engine's own.
    pub store: StoreFootprint,
}

/// The disk usage of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassUsage {
    /// Name of the class.
    pub class: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
}

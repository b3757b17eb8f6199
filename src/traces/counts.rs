//! Counts of the export, for the metrics.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Spans that were exported since the start of the process, and requests that failed. Shared by its clones.
#[derive(Debug, Clone, Default)]
pub struct ExportCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    failures: AtomicU64,
}

impl ExportCounts {
    /// Spans that the collector has taken.
    pub fn exported(&self) -> u64 {
        self.0.exported.load(Ordering::Relaxed)
    }

    /// Requests that failed, each repetition too.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Adds spans that the collector has taken.
    pub fn add_exported(&self, spans: u64) {
        self.0.exported.fetch_add(spans, Ordering::Relaxed);
    }

    /// Adds a request that failed.
    pub fn add_failure(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }
}

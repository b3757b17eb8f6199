//! Port of free disk space.

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::model::LowDiskSpace;

/// Measures the free disk space for the records of accepted runs.
pub trait DiskSpaceGauge: Debug + Send + Sync + 'static {
    /// The shortage because of which no new run may be accepted; `None` if there is enough. The value may be slightly
    /// stale.
    fn low_disk_space(&self) -> BoxFuture<'static, Option<LowDiskSpace>>;
}

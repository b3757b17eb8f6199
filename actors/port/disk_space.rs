use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::model::LowDiskSpace;

/// Whether there is room to record what accepted runs will come to.
pub trait DiskSpaceGauge: Debug + Send + Sync + 'static {
    /// Why no new run is to be accepted; `None` if one may be. As of a moment ago.
    fn low_disk_space(&self) -> BoxFuture<'static, Option<LowDiskSpace>>;
}

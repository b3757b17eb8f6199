use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::model::Shortage;

/// Whether there is room to record what accepted runs will come to.
pub trait Space: Debug + Send + Sync + 'static {
    /// Why no new run is to be accepted; `None` if one may be. As of a moment ago.
    fn shortage(&self) -> BoxFuture<'static, Option<Shortage>>;
}

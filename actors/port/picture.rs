//! Port of pictures: scales those of submissions to what models read.

use std::{fmt::Debug, future::ready};

use bytes::Bytes;
use futures::future::BoxFuture;

/// Scales pictures before they are recorded.
pub trait PictureScaler: Debug + Send + Sync + 'static {
    /// The picture as models read it; the same bytes if it is small enough. The error says why `file` is no picture.
    fn scale(&self, file: Bytes) -> BoxFuture<'static, Result<Bytes, String>>;
}

/// Takes all pictures as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoScaling;

impl PictureScaler for NoScaling {
    fn scale(&self, file: Bytes) -> BoxFuture<'static, Result<Bytes, String>> {
        Box::pin(ready(Ok(file)))
    }
}

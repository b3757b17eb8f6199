//! The section `attachments`: the files that models may send with the tool `message`.

use hermod_actors::message::AttachmentLimits;
use serde::Deserialize;

use super::values::{OptionalByteSize, PositiveCount};

/// Most files of one message, whatever is configured.
const MAX_COUNT: u32 = 100;

/// The section `attachments`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachmentsSection {
    /// Most files of one message.
    pub count: PositiveCount,
    /// Most bytes of a file; without any, models send no files.
    pub each: OptionalByteSize,
    /// Most bytes of the files of one message.
    pub total: OptionalByteSize,
}

impl AttachmentsSection {
    /// The bounds; `None` if models send no files.
    pub fn limits(&self) -> Option<AttachmentLimits> {
        let (bytes, total_bytes) = (self.each.0, self.total.0);
        let count = self.count.0.min(MAX_COUNT) as usize;
        (bytes > 0 && total_bytes > 0).then_some(AttachmentLimits { count, bytes, total_bytes })
    }
}

//! The files of messages, as they were captured: read from the artifacts, and compared with the hashes that were recorded.

use std::path::Path;

use bytes::Bytes;
use hermod_actors::{
    model::OutboxMessage,
    port::{ArtifactError, Artifacts as _},
};

use super::verdict::SendResult;
use crate::artifacts::FileArtifacts;

/// Media types by the ends of names.
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("csv", "text/csv; charset=utf-8"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("txt", "text/plain; charset=utf-8"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];
const ANY_MEDIA_TYPE: &str = "application/octet-stream";

/// A file of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedFile {
    /// Its name; it means nothing to a file system or a header.
    pub name: String,
    /// Its media type, by its name.
    pub media_type: &'static str,
    /// Its content.
    pub bytes: Bytes,
}

/// Where the files of messages are.
#[derive(Debug, Clone)]
pub(super) struct AttachmentFiles(FileArtifacts);

impl AttachmentFiles {
    /// Those of this state directory.
    pub(super) fn at(state: &Path) -> Self {
        Self(FileArtifacts::at(state))
    }

    /// The files of a message. Without one of them the message is not sent.
    pub(super) async fn load(&self, message: &OutboxMessage) -> Result<Vec<AttachedFile>, SendResult> {
        let mut files = Vec::new();
        for (attachment, name) in message.artifacts() {
            let file = &attachment.name;
            let lost = |why: &str| SendResult::Permanent { why: format!("its file {file}: {why}") };
            let name = name.ok_or_else(|| lost("it has a name that none can have"))?;
            let failed = |error: ArtifactError| match error {
                ArtifactError::Unavailable(why) => {
                    SendResult::Temporary { why: format!("its file {file}: {why}"), pause: None }
                }
                ArtifactError::NotFound(_) | ArtifactError::Removed { .. } | ArtifactError::Altered(_) => {
                    lost(&error.to_string())
                }
            };
            if let Some(sha256) = &attachment.artifact.sha256 {
                self.0.verify(name, **sha256).await.map_err(failed)?;
            }
            let size = usize::try_from(attachment.artifact.bytes).unwrap_or(usize::MAX);
            let read = self.0.read(name, 0, size).await.map_err(failed)?;
            if read.total != attachment.artifact.bytes {
                return Err(lost("it was altered"));
            }
            files.push(AttachedFile {
                name: file.to_string(),
                media_type: media_type(file),
                bytes: read.bytes,
            });
        }
        Ok(files)
    }
}

fn media_type(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).unwrap_or_default();
    MEDIA_TYPES.iter().find(|(known, _)| *known == end).map_or(ANY_MEDIA_TYPE, |(_, media_type)| media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_media_type() {
        let check = |name: &str, expect: &str| assert_eq!(media_type(name), expect, "{name}");
        check("a.PNG", "image/png");
        check("a.tar.gz", "application/gzip");
        check("a.b.unknown", ANY_MEDIA_TYPE);
        check("png", ANY_MEDIA_TYPE);
    }
}

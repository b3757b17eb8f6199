//! Repeated submissions: a known idempotency key returns the first run, or is refused if the task differs.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::{
    model::{
        ContentHash, Hasher, Image, ImageFormat, MessageRow, RunAccepted, RunId, RunRow, SessionId,
        SessionRow,
    },
    port::Artifacts,
    runtime::{RunError, RunRequest, SessionChoice, images},
    session::AcceptedRun,
    turn::repair,
};

/// Most characters of a task in an error message.
const MAX_EXCERPT_CHARS: usize = 60;
/// The sequence number of `run.accepted` in the append that opens its session.
const FIRST_ACCEPTED_SEQ: u64 = 2;

/// The idempotency key belongs to a run with another task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{key}` stands for run {run}, which has {part}: its task is {first:?}, this one is {this:?}; repeat that task as it \
     was, or give this one another key"
)]
pub struct KeyConflict {
    /// The idempotency key.
    pub key: Arc<str>,
    /// The first run with this key.
    pub run: RunId,
    /// The first part of the task that differs.
    pub part: TaskPart,
    /// The beginning of the first run's input.
    pub first: String,
    /// The beginning of the refused input.
    pub this: String,
}

/// The parts of a task's identity, in the order of comparison. Models, limits and all other fields count only by the hash
/// of a client's request: without one, a repeat gets the first run with its own spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum TaskPart {
    /// The input.
    #[strum(serialize = "another text")]
    Input,
    /// The images, byte for byte.
    #[strum(serialize = "other pictures")]
    Images,
    /// The history in the request.
    #[strum(serialize = "another history")]
    History,
    /// The conversation: the session by its key or id, or a new one.
    #[strum(serialize = "another conversation")]
    Session,
    /// Another part of the client's request.
    #[strum(serialize = "other settings")]
    Settings,
}

/// The first run of an idempotency key, from the store.
#[derive(Debug, Clone, Copy)]
pub struct FirstTask<'a> {
    /// The run's index row.
    pub row: &'a RunRow,
    /// The row of the run's session.
    pub session: &'a SessionRow,
    /// The record that accepted the run.
    pub accepted: &'a RunAccepted,
}

impl RunRequest {
    /// Refuses a request whose idempotency key belongs to a run with another task. The images of that run are read from
    /// `artifacts`; of a removed image, format and size are compared.
    pub async fn check_repeats(
        &self,
        first: FirstTask<'_>,
        artifacts: &dyn Artifacts,
    ) -> Result<(), KeyConflict> {
        let Some(key) = &self.idempotency_key else { return Ok(()) };
        let Some(part) = self.difference(first, artifacts).await else { return Ok(()) };
        Err(KeyConflict {
            key: Arc::clone(key),
            run: first.row.id,
            part,
            first: excerpt(&first.accepted.input),
            this: excerpt(&self.input),
        })
    }

    /// A message with a key has a hash also if its caller gives none: its row has no text that a repeat could be compared
    /// with.
    pub(super) fn with_message_hash(mut self) -> Self {
        let needs_hash = self.queueing.is_some() && self.idempotency_key.is_some();
        if needs_hash && self.request_hash.is_none() {
            let mut hasher = Hasher::default();
            hasher.part(self.input.as_bytes());
            self.images.iter().for_each(|image| hasher.part(image));
            self.request_hash = Some(hasher.finish());
        }
        self
    }

    /// Refuses a request whose idempotency key belongs to a message that another request sent.
    pub(super) fn check_repeats_message(&self, first: &MessageRow) -> Result<AcceptedRun, RunError> {
        let is_same = self.request_hash.is_some() && self.request_hash == first.request_hash;
        if let Some(key) = self.idempotency_key.as_ref().filter(|_| !is_same) {
            return Err(RunError::MessageKeyConflict { key: Arc::clone(key), message: first.id });
        }
        Ok(AcceptedRun { run: first.id, session: first.session, at: first.id.created_at() })
    }

    async fn difference(&self, first: FirstTask<'_>, artifacts: &dyn Artifacts) -> Option<TaskPart> {
        let FirstTask { row, session, accepted } = first;
        if self.input != accepted.input {
            return Some(TaskPart::Input);
        }
        if !has_images(row.session, row.id, &accepted.images, &self.images, artifacts).await {
            return Some(TaskPart::Images);
        }
        if repair(&self.history).past != *accepted.history {
            return Some(TaskPart::History);
        }
        let is_there = match &self.session {
            SessionChoice::New => *session.key == *session.id.to_string() && row.first == FIRST_ACCEPTED_SEQ,
            SessionChoice::Key(key) => *key == session.key,
            SessionChoice::Id(id) => *id == session.id,
        };
        if !is_there {
            return Some(TaskPart::Session);
        }
        let is_same_request = match (self.request_hash, accepted.request_hash) {
            (Some(this), Some(first)) => this == first,
            // One of them came from a caller that compares the task alone.
            (None, _) | (_, None) => true,
        };
        (!is_same_request).then_some(TaskPart::Settings)
    }
}

/// The beginning of a text on one line.
fn excerpt(text: &str) -> String {
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(MAX_EXCERPT_CHARS) {
        words.truncate(end);
        words.push('…');
    }
    words
}

/// Whether the images of a run equal these.
async fn has_images(
    session: SessionId,
    run: RunId,
    kept: &[Image],
    given: &[Bytes],
    artifacts: &dyn Artifacts,
) -> bool {
    if kept.len() != given.len() {
        return false;
    }
    for (n, (kept, given)) in (0..).zip(kept.iter().zip(given)) {
        // What a file is scaled to may differ between versions of this program.
        if let Some(original) = &kept.original {
            if **original != ContentHash::of(given) {
                return false;
            }
            continue;
        }
        let is_alike = Some(kept.format) == ImageFormat::of_bytes(given)
            && usize::try_from(kept.artifact.bytes) == Ok(given.len());
        if !is_alike {
            return false;
        }
        let content = read_image(images::image_name(session, run, n), given.len(), artifacts).await;
        if content.is_some_and(|content| content != *given) {
            return false;
        }
    }
    true
}

/// The bytes of an image; `None` if it cannot be read, for example because it was removed.
async fn read_image(
    name: crate::port::ArtifactName,
    bytes: usize,
    artifacts: &dyn Artifacts,
) -> Option<BytesMut> {
    let mut content = BytesMut::with_capacity(bytes);
    while content.len() < bytes {
        let offset = u64::try_from(content.len()).ok()?;
        let excerpt = artifacts.read(name, offset, bytes - content.len()).await.ok()?;
        if excerpt.bytes.is_empty() {
            return None;
        }
        content.extend_from_slice(&excerpt.bytes);
    }
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_shown_by_its_beginning_on_one_line() {
        assert_eq!(excerpt("a\n  b\t"), "a b");
        assert_eq!(excerpt(&"ä".repeat(61)), format!("{}…", "ä".repeat(60)));
    }
}

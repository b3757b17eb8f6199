//! Port of artifacts: outputs and images kept as files, and one attempt's access to those of its session.

use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{NoRedaction, RedactedStream, TextRedactor};
use crate::model::{Artifact, ArtifactHashes, ArtifactName, Attempt, ContentHash, ContentHasher, Timestamp};

/// Stores artifacts byte for byte: whole outputs that are too long for a model to read at once, and images.
pub trait Artifacts: Debug + Send + Sync + 'static {
    /// Starts an artifact. Readers see it under its name only after [`ArtifactSink::finish`] has returned; it then
    /// replaces an earlier one of the same name.
    fn create(&self, name: ArtifactName) -> BoxFuture<'static, Result<Box<dyn ArtifactSink>, ArtifactError>>;

    /// Compares an artifact's content with its recorded hash; [`ArtifactError::Altered`] if they differ.
    fn verify(
        &self,
        name: ArtifactName,
        sha256: ContentHash,
    ) -> BoxFuture<'static, Result<(), ArtifactError>>;

    /// Reads at most `max` bytes from `offset` on; empty at the end and beyond.
    fn read(
        &self,
        name: ArtifactName,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'static, Result<Excerpt, ArtifactError>>;
}

/// An unfinished artifact. Dropping it before `finish` leaves nothing.
pub trait ArtifactSink: Debug + Send {
    /// Appends bytes. After an error, or if the future was dropped, the artifact cannot be finished any more.
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactError>>;

    /// Finishes the artifact; durable when the future resolves.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), ArtifactError>>;
}

/// A range of an artifact's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The bytes.
    pub bytes: Bytes,
    /// Total bytes of the artifact.
    pub total: u64,
}

/// The state of an artifact that a record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The artifact exists and has this many bytes.
    Present(u64),
    /// The content does not match the recorded hash.
    Altered,
    /// The artifact was removed when its retention ended: not an error.
    Removed(Timestamp),
    /// The artifact is lost.
    Missing,
}

/// Why an artifact cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// No artifact has this name.
    #[error("this session has no artifact `{0}`")]
    NotFound(String),
    /// The artifact was removed when its retention ended.
    #[error("the artifact `{handle}` was removed at {at}: its time was over")]
    Removed {
        /// Its name within its session.
        handle: String,
        /// Time of the removal.
        at: Timestamp,
    },
    /// The content does not match the recorded hash.
    #[error("the artifact `{0}` was altered: its content is not the one that was kept")]
    Altered(String),
    /// The artifact store failed to write or to read.
    #[error("{0}")]
    Unavailable(String),
}

/// Most files of an attempt that are artifacts of their own. Their names have a number beyond those of attempts.
const FILES_PER_ATTEMPT: u32 = 1_000;

/// One attempt's access to the artifacts of its session: it reads all of them and writes its own.
#[derive(Debug, Clone)]
pub struct AttemptArtifacts {
    artifacts: Arc<dyn Artifacts>,
    name: ArtifactName,
    hashes: ArtifactHashes,
    redactor: Arc<dyn TextRedactor>,
}

/// An unfinished artifact that is redacted and hashed while it is written.
#[derive(Debug)]
pub struct ArtifactWriter {
    sink: Box<dyn ArtifactSink>,
    handle: String,
    redacted: Box<dyn RedactedStream>,
    hasher: ContentHasher,
    bytes: u64,
}

impl ArtifactWriter {
    /// Appends bytes. After an error, or if the future was dropped, the artifact cannot be finished any more.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), ArtifactError> {
        let redacted = self.redacted.push(bytes);
        self.write_redacted(redacted).await
    }

    async fn write_redacted(&mut self, bytes: Bytes) -> Result<(), ArtifactError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.hasher.update(&bytes);
        self.bytes += bytes.len() as u64;
        self.sink.write(bytes).await
    }

    /// Finishes the artifact; durable when the future resolves.
    pub async fn finish(mut self) -> Result<Artifact, ArtifactError> {
        let rest = self.redacted.finish();
        self.write_redacted(rest).await?;
        self.sink.finish().await?;
        Ok(Artifact { handle: self.handle, bytes: self.bytes, sha256: Some(self.hasher.finish().into()) })
    }
}

impl AttemptArtifacts {
    /// Access to the artifacts of `name`'s session for the attempt in `name`.
    pub fn new(artifacts: Arc<dyn Artifacts>, name: ArtifactName) -> Self {
        Self { artifacts, name, hashes: ArtifactHashes::default(), redactor: Arc::new(NoRedaction) }
    }

    /// The same access; what is written is redacted, also where a secret lies in several writes.
    #[must_use]
    pub fn with_redactor(self, redactor: &Arc<dyn TextRedactor>) -> Self {
        Self { redactor: Arc::clone(redactor), ..self }
    }

    /// The same access; reads of these artifacts also verify their hashes.
    #[must_use]
    pub fn with_hashes(self, hashes: ArtifactHashes) -> Self {
        Self { hashes, ..self }
    }

    /// The name of this attempt's artifact.
    pub const fn name(&self) -> ArtifactName {
        self.name
    }

    /// The same access for another attempt of the call.
    #[must_use]
    pub fn for_attempt(&self, attempt: Attempt) -> Self {
        let name = ArtifactName { attempt, ..self.name };
        Self { name, ..self.clone() }
    }

    /// The same access for one of several files of this attempt, by its index.
    #[must_use]
    pub fn for_file(&self, index: u32) -> Self {
        let first = self.name.attempt.saturating_mul(FILES_PER_ATTEMPT);
        self.for_attempt(first.saturating_add(index).saturating_add(1))
    }

    /// Starts this attempt's artifact.
    pub async fn create(&self) -> Result<ArtifactWriter, ArtifactError> {
        let sink = self.artifacts.create(self.name).await?;
        let (handle, hasher) = (self.name.handle(), ContentHasher::default());
        Ok(ArtifactWriter { sink, handle, redacted: self.redactor.stream(), hasher, bytes: 0 })
    }

    /// Writes `bytes` as this attempt's artifact; durable when the future resolves.
    pub async fn write(&self, bytes: Bytes) -> Result<Artifact, ArtifactError> {
        let mut writer = self.create().await?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Reads a part of an artifact of this session. If its hash was recorded, the content must match.
    pub async fn read(&self, handle: &str, offset: u64, max: usize) -> Result<Excerpt, ArtifactError> {
        let name = ArtifactName::from_handle(self.name.session, handle)
            .ok_or_else(|| ArtifactError::NotFound(handle.to_owned()))?;
        if let Some(sha256) = self.hashes.get(handle) {
            self.artifacts.verify(name, *sha256).await?;
        }
        self.artifacts.read(name, offset, max).await
    }

    /// Reads the artifact of another attempt of this call, at most `max` bytes.
    pub async fn read_earlier(&self, attempt: Attempt, max: usize) -> Result<Excerpt, ArtifactError> {
        self.artifacts.read(ArtifactName { attempt, ..self.name }, 0, max).await
    }
}

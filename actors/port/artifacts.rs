use std::{fmt, fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::model::{Artifact, Attempt, CallId, ContentHash, ContentHasher, SessionId, Timestamp};

/// Whole outputs that are too long for a model to read at once, kept byte for byte.
pub trait Artifacts: Debug + Send + Sync + 'static {
    /// Begins an artifact. Nothing is to be read under its name before [`ArtifactSink::finish`] has resolved; then it takes the
    /// place of an earlier one of the same name.
    fn create(&self, name: ArtifactName) -> BoxFuture<'static, Result<Box<dyn ArtifactSink>, ArtifactError>>;

    /// Compares the content of an artifact with the hash that was recorded of it: [`ArtifactError::Altered`] if it is another
    /// one.
    fn verify(
        &self,
        name: ArtifactName,
        sha256: ContentHash,
    ) -> BoxFuture<'static, Result<(), ArtifactError>>;

    /// Reads at most `max` bytes from `offset` on; none at the end and beyond.
    fn read(
        &self,
        name: ArtifactName,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'static, Result<Excerpt, ArtifactError>>;
}

/// An artifact in the making. Dropped before it is finished, it leaves nothing.
pub trait ArtifactSink: Debug + Send {
    /// Adds bytes. After an error, or when the future was dropped, the artifact cannot be finished any more.
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactError>>;

    /// Resolves when all of it is durable.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), ArtifactError>>;
}

/// The name of an artifact: whose it is, and what made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArtifactName {
    /// The session, which alone may read it.
    pub session: SessionId,
    /// The call.
    pub call: CallId,
    /// The attempt that made it.
    pub attempt: Attempt,
}

impl ArtifactName {
    /// The name within its session, as the model knows it.
    pub fn handle(&self) -> String {
        format!("{}-{}", self.call, self.attempt)
    }

    /// The artifact of this session that a handle names; `None` if it is no handle at all.
    pub fn from_handle(session: SessionId, handle: &str) -> Option<Self> {
        let (call, attempt) = handle.rsplit_once('-')?;
        let name = Self { session, call: call.parse().ok()?, attempt: attempt.parse().ok()? };
        // Exactly one spelling, so that a name is a name in every store.
        (name.handle() == handle).then_some(name)
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}-{}", self.session, self.call, self.attempt)
    }
}

/// Some bytes of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The bytes.
    pub bytes: Bytes,
    /// How many the artifact has.
    pub total: u64,
}

/// What there is of an artifact that a record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is there, with so many bytes.
    Present(u64),
    /// Its content is not the one whose hash was recorded.
    Altered,
    /// It was removed, for its time was over: nothing is wrong.
    Removed(Timestamp),
    /// It is lost.
    Missing,
}

/// Why an artifact cannot be kept or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// There is none of this name.
    #[error("this session has no artifact `{0}`")]
    NotFound(String),
    /// There was one, and it was not to be kept for longer.
    #[error("the artifact `{handle}` was removed at {at}: its time was over")]
    Removed {
        /// Its name within its session.
        handle: String,
        /// When.
        at: Timestamp,
    },
    /// Its content is not the one whose hash was recorded.
    #[error("the artifact `{0}` was altered: its content is not the one that was kept")]
    Altered(String),
    /// The store does not take it or does not give it.
    #[error("{0}")]
    Unavailable(String),
}

/// The artifacts of one session in the hands of one attempt of a call, which may read them all and make its own.
#[derive(Debug, Clone)]
pub struct AttemptArtifacts {
    artifacts: Arc<dyn Artifacts>,
    name: ArtifactName,
    hashes: ArtifactHashes,
}

/// The hashes that a session's records have of its artifacts, by handle. A clone shares all of them.
#[derive(Debug, Clone, Default)]
pub struct ArtifactHashes(imbl::OrdMap<Arc<str>, ContentHash>);

impl ArtifactHashes {
    /// Adds that of an artifact, if it has one.
    pub fn add(&mut self, artifact: &Artifact) {
        if let Some(sha256) = &artifact.sha256 {
            self.0.insert(artifact.handle.as_str().into(), **sha256);
        }
    }
}

/// An artifact in the making, which is hashed as it comes.
#[derive(Debug)]
pub struct ArtifactWriter {
    sink: Box<dyn ArtifactSink>,
    handle: String,
    hasher: ContentHasher,
    bytes: u64,
}

impl ArtifactWriter {
    /// Adds bytes. After an error, or when the future was dropped, the artifact cannot be finished any more.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), ArtifactError> {
        self.hasher.update(&bytes);
        self.bytes += bytes.len() as u64;
        self.sink.write(bytes).await
    }

    /// Resolves when all of it is durable.
    pub async fn finish(self) -> Result<Artifact, ArtifactError> {
        self.sink.finish().await?;
        Ok(Artifact { handle: self.handle, bytes: self.bytes, sha256: Some(self.hasher.finish().into()) })
    }
}

impl AttemptArtifacts {
    /// The artifacts of `own`'s session, for the attempt that `own` names.
    pub fn new(artifacts: Arc<dyn Artifacts>, name: ArtifactName) -> Self {
        Self { artifacts, name, hashes: ArtifactHashes::default() }
    }

    /// The same shelf, where what is read must have these hashes.
    #[must_use]
    pub fn with_hashes(self, hashes: ArtifactHashes) -> Self {
        Self { hashes, ..self }
    }

    /// The name of what this attempt makes.
    pub const fn name(&self) -> ArtifactName {
        self.name
    }

    /// The same shelf in the hands of another attempt of the call.
    #[must_use]
    pub fn for_attempt(&self, attempt: Attempt) -> Self {
        let own = ArtifactName { attempt, ..self.name };
        Self { name: own, ..self.clone() }
    }

    /// Begins this attempt's artifact.
    pub async fn create(&self) -> Result<ArtifactWriter, ArtifactError> {
        let keeper = self.artifacts.create(self.name).await?;
        let (handle, hasher) = (self.name.handle(), ContentHasher::default());
        Ok(ArtifactWriter { sink: keeper, handle, hasher, bytes: 0 })
    }

    /// Keeps `bytes` as this attempt's artifact; durable when it resolves.
    pub async fn write(&self, bytes: Bytes) -> Result<Artifact, ArtifactError> {
        let mut writer = self.create().await?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Reads from an artifact of this session, if its content is the one that was recorded.
    pub async fn read(&self, handle: &str, offset: u64, max: usize) -> Result<Excerpt, ArtifactError> {
        let name = ArtifactName::from_handle(self.name.session, handle)
            .ok_or_else(|| ArtifactError::NotFound(handle.to_owned()))?;
        if let Some(sha256) = self.hashes.0.get(handle) {
            self.artifacts.verify(name, *sha256).await?;
        }
        self.artifacts.read(name, offset, max).await
    }

    /// Reads what an earlier attempt of this call has kept, at most `max` bytes.
    pub async fn read_earlier(&self, attempt: Attempt, max: usize) -> Result<Excerpt, ArtifactError> {
        self.artifacts.read(ArtifactName { attempt, ..self.name }, 0, max).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunId;

    #[test]
    fn a_handle_names_one_artifact_of_its_session() {
        let session = SessionId::from_bits(1);
        let call = CallId { run: RunId::from_bits(7), iteration: 3, n: 2 };
        let name = ArtifactName { session, call, attempt: 1 };
        let handle = name.handle();
        assert_eq!(ArtifactName::from_handle(session, &handle), Some(name));
        for bad in [
            "",
            "-",
            "../../etc/passwd",
            "x-1",
            &format!("{call}-01"),
            &format!("{call}-+1"),
            &call.to_string(),
        ] {
            assert_eq!(ArtifactName::from_handle(session, bad), None, "{bad}");
        }
    }
}

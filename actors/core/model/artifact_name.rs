//! Names and recorded hashes of artifacts.

use std::{fmt, sync::Arc};

use super::{Artifact, Attempt, CallId, ContentHash, SessionId};

/// The identity of an artifact: its session, and the attempt that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArtifactName {
    /// The session; only its calls may read the artifact.
    pub session: SessionId,
    /// The call.
    pub call: CallId,
    /// The attempt that wrote it.
    pub attempt: Attempt,
}

impl ArtifactName {
    /// The name within its session, as the model uses it.
    pub fn handle(&self) -> String {
        format!("{}-{}", self.call, self.attempt)
    }

    /// Parses a handle of this session; `None` if the text is not a handle.
    pub fn from_handle(session: SessionId, handle: &str) -> Option<Self> {
        let (call, attempt) = handle.rsplit_once('-')?;
        let name = Self { session, call: call.parse().ok()?, attempt: attempt.parse().ok()? };
        // Only the canonical spelling is accepted, so that every store treats names alike.
        (name.handle() == handle).then_some(name)
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}-{}", self.session, self.call, self.attempt)
    }
}

/// Recorded hashes of a session's artifacts, by handle. A clone shares structure, so it is cheap.
#[derive(Debug, Clone, Default)]
pub struct ArtifactHashes(imbl::OrdMap<Arc<str>, ContentHash>);

impl ArtifactHashes {
    /// Adds the artifact's hash, if it has one.
    pub fn add(&mut self, artifact: &Artifact) {
        if let Some(sha256) = &artifact.sha256 {
            self.0.insert(artifact.handle.as_str().into(), **sha256);
        }
    }

    /// The recorded hash of the artifact with this handle.
    pub fn get(&self, handle: &str) -> Option<&ContentHash> {
        self.0.get(handle)
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

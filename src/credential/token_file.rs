//! Storage of rotated refresh tokens, one file for each provider, and the lock against their use by two processes.

use std::{
    fs::File,
    io::{self, ErrorKind},
    path::PathBuf,
    time::Duration,
};

use hermod_actors::model::Hash;
use serde::{Deserialize, Serialize};

use crate::{
    files::{self, IoResult as _},
    redaction,
    secret::Secret,
};

/// Attempts to take a lock that another process holds, with a pause after each.
const MAX_TRIES: u32 = 500;
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// The mark in place of a token.
pub(super) const LABEL: &str = "oauth";
/// Limit of a token file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Stores the refresh token that replaced a provider's configured one, readable only by its user.
#[derive(Debug, Clone)]
pub struct RefreshTokenFile {
    folder: PathBuf,
    provider: String,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct RefreshTokenFileContent {
    /// Hash of the configured token that this one replaces.
    #[serde(rename = "of")]
    configured_hash: String,
    refresh_token: String,
}

impl RefreshTokenFile {
    /// The file of a provider in `folder`, which need not exist. A provider's name is a valid file name.
    pub fn new(folder: impl Into<PathBuf>, provider: &str) -> Self {
        Self { folder: folder.into(), provider: provider.to_owned() }
    }

    fn path(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}{end}", self.provider))
    }

    /// Waits until no other process uses the token. None does until the returned file is closed.
    pub(super) fn lock(&self) -> io::Result<File> {
        files::make_folder(&self.folder)?;
        files::lock(&self.path(".lock"), (MAX_TRIES, RETRY_DELAY))
    }

    /// The token that replaces the configured one.
    pub(super) fn load(&self, configured: &Secret) -> io::Result<Option<Secret>> {
        let path = self.path(".json");
        let Some(text) = files::read_regular_text(&path, MAX_FILE_BYTES).if_exists()? else {
            return Ok(None);
        };
        // The parser's own error would quote the text.
        let damaged =
            || format!("{} is damaged; remove it, and configure a new refresh token", path.display());
        let content: RefreshTokenFileContent =
            serde_json::from_str(&text).map_err(|_| io::Error::new(ErrorKind::InvalidData, damaged()))?;
        Ok((content.configured_hash == hash(configured)).then(|| Secret::new(content.refresh_token)))
    }

    /// This process redacts the stored token from now on. A file that cannot be read is reported when its token is used.
    pub(crate) fn learn(&self) {
        let text = files::read_regular_text(&self.path(".json"), MAX_FILE_BYTES).unwrap_or_default();
        if let Ok(content) = serde_json::from_str::<RefreshTokenFileContent>(&text) {
            redaction::learn(LABEL, &Secret::new(content.refresh_token));
        }
    }

    /// Stores a token in place of the configured one. After a crash, the file has either the previous token or this
    /// one.
    pub(super) fn save(&self, configured: &Secret, token: &Secret) -> io::Result<()> {
        let content = RefreshTokenFileContent {
            configured_hash: hash(configured),
            refresh_token: token.reveal().to_owned(),
        };
        files::replace(&self.path(".json"), &self.path(".part"), &serde_json::to_vec(&content)?)
    }
}

fn hash(token: &Secret) -> String {
    Hash::of(token.reveal().as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_token_is_kept_in_place_of_the_configured_one() {
        let dir = tempfile::tempdir().unwrap();
        let kept = RefreshTokenFile::new(dir.path().join("tokens"), "acme");
        let (first, second) = (Secret::new("configured"), Secret::new("rotated"));
        assert!(kept.load(&first).unwrap().is_none());
        let locked = kept.lock().unwrap();
        kept.save(&first, &second).unwrap();
        drop(locked);
        assert_eq!(kept.load(&first).unwrap().unwrap().reveal(), "rotated");
        assert!(kept.load(&Secret::new("another login")).unwrap().is_none());
        let modes: Vec<_> = fs::read_dir(dir.path().join("tokens"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().permissions().mode() & 0o777)
            .collect();
        assert_eq!(modes, [0o600; 2]);
        let folder = fs::metadata(dir.path().join("tokens")).unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
        fs::write(kept.path(".json"), "{\"of\": \"rotated\"").unwrap();
        let error = kept.load(&first).unwrap_err().to_string();
        assert!(error.contains("acme.json is damaged; remove it") && !error.contains("rotated"), "{error}");
        assert!(!format!("{kept:?}").contains("rotated"));
    }
}

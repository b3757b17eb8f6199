//! Storage of rotated refresh tokens, one file for each provider, and the lock against their use by two processes.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::PathBuf,
    thread::sleep,
    time::Duration,
};

use hermod_actors::model::Hash;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{files::read_regular_text, secret::Secret};

/// Attempts to take a lock that another process holds, with a pause after each.
const MAX_TRIES: usize = 500;
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Limit of a token file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Stores the refresh token that replaced a provider's configured one, readable only by its user.
#[derive(Debug, Clone)]
pub struct TokenFile {
    folder: PathBuf,
    provider: String,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct TokenFileContent {
    /// Hash of the configured token that this one replaces.
    #[serde(rename = "of")]
    configured_hash: String,
    refresh_token: String,
}

/// Holds the lock of a provider's refresh token: no other process uses it meanwhile.
#[derive(Debug)]
pub(super) struct TokenLock(#[expect(dead_code, reason = "closing it gives the lock up")] File);

impl TokenFile {
    /// The file of a provider in `folder`, which need not exist. A provider's name is a valid file name.
    pub fn new(folder: impl Into<PathBuf>, provider: &str) -> Self {
        Self { folder: folder.into(), provider: provider.to_owned() }
    }

    fn path(&self, end: &str) -> PathBuf {
        self.folder.join(format!("{}{end}", self.provider))
    }

    /// Waits until no other process uses the token.
    pub(super) fn lock(&self) -> io::Result<TokenLock> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let file = open().truncate(false).open(self.path(".lock"))?;
        for _ in 0..MAX_TRIES {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(TokenLock(file)),
                Err(rustix::io::Errno::WOULDBLOCK) => sleep(RETRY_DELAY),
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(ErrorKind::TimedOut, "another process has held the lock for too long"))
    }

    /// The token that replaces the configured one.
    pub(super) fn load(&self, configured: &Secret) -> io::Result<Option<Secret>> {
        let path = self.path(".json");
        let text = match read_regular_text(&path, MAX_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // The parser's own error would quote the text.
        let damaged =
            || format!("{} is damaged; remove it, and configure a new refresh token", path.display());
        let content: TokenFileContent =
            serde_json::from_str(&text).map_err(|_| io::Error::new(ErrorKind::InvalidData, damaged()))?;
        Ok((content.configured_hash == hash(configured)).then(|| Secret::new(content.refresh_token)))
    }

    /// Stores a token in place of the configured one. After a crash, the file has either the previous token or this
    /// one.
    pub(super) fn save(&self, configured: &Secret, token: &Secret) -> io::Result<()> {
        let content =
            TokenFileContent { configured_hash: hash(configured), refresh_token: token.reveal().to_owned() };
        let part = self.path(".part");
        let mut file = open().truncate(true).open(&part)?;
        file.write_all(&serde_json::to_vec(&content)?)?;
        file.sync_all()?;
        fs::rename(&part, self.path(".json"))?;
        File::open(&self.folder)?.sync_all()
    }
}

fn open() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn hash(token: &Secret) -> String {
    Hash::of(token.reveal().as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_kept_in_place_of_the_configured_one() {
        let dir = tempfile::tempdir().unwrap();
        let kept = TokenFile::new(dir.path().join("tokens"), "acme");
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

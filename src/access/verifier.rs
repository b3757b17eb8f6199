//! Finds out whether a presented text is a token.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use hermod_actors::model::Timestamp;

use super::{
    error::TokenFileError,
    token::{AccessToken, TokenEntry, TokenHash},
    token_file::{MAX_BYTES, TokenFile},
};
use crate::{clock, files::FileCache};

type SharedEntries = Arc<[Arc<TokenEntry>]>;

/// Verifies presented tokens, from any thread. A token that is created or revoked meanwhile, also by another process,
/// counts at the next call.
#[derive(Debug)]
pub struct TokenVerifier {
    file: TokenFile,
    cache: Mutex<FileCache<Result<SharedEntries, TokenFileError>>>,
}

impl TokenVerifier {
    /// Verifies the tokens of this state directory. Reads nothing yet.
    pub fn new(state: &Path) -> Self {
        Self { file: TokenFile::new(state), cache: Mutex::default() }
    }

    /// The entry of the presented token; `None` if it is no token, or has expired or been revoked. Costs one `stat`, and
    /// the reading of the file if it has changed.
    ///
    /// Fails while the file cannot be read, because it is unknown then which tokens there are.
    pub fn verify(&self, presented: &str) -> Result<Option<Arc<TokenEntry>>, TokenFileError> {
        self.verify_at(presented, clock::now())
    }

    /// Whether a token that was verified before is still one.
    pub fn is_valid(&self, token: &TokenEntry) -> bool {
        let is_it = |entry: &Arc<TokenEntry>| **entry == *token && !entry.has_expired(clock::now());
        self.entries().is_ok_and(|entries| entries.iter().any(is_it))
    }

    pub(super) fn verify_at(
        &self,
        presented: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<TokenEntry>>, TokenFileError> {
        let entries = self.entries()?;
        // All tokens have this length, so it is no secret.
        if presented.len() != AccessToken::LENGTH {
            return Ok(None);
        }
        let hash = TokenHash::of(presented);
        let mut found = None;
        // Every hash is compared, so that the time does not tell which entry matches.
        for entry in &*entries {
            if entry.sha256.is(&hash) {
                found = Some(entry);
            }
        }
        Ok(found.filter(|entry| !entry.has_expired(now)).cloned())
    }

    fn entries(&self) -> Result<SharedEntries, TokenFileError> {
        // Ignores poisoning: each update is one assignment.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let parse = |bytes: &[u8]| Ok(self.file.parse(bytes)?.into_iter().map(Arc::new).collect());
        match cache.get(self.file.path(), MAX_BYTES, parse) {
            Ok(entries) => entries.unwrap_or_else(|| Ok(Arc::default())),
            Err(error) => Err(self.file.unreadable(&error)),
        }
    }
}

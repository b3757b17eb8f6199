//! The file `tokens.json` in the state directory. It is independent of the store, so tokens can be created and revoked
//! while another process holds that.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    error::{TokenError, TokenFileError},
    token::{AccessToken, NewToken, TokenEntry, check_name, is_id, random_id},
};
use crate::files::{self, IoResult as _, PathError};

/// Name of the file in the state directory.
const FILE: &str = "tokens.json";
/// The version of the file's form.
const VERSION: u32 = 1;
/// Maximum tokens of the file, expired ones too.
const MAX_TOKENS: usize = 1_000;
/// Size limit of the file.
pub(super) const MAX_BYTES: u64 = 4 << 20;
/// Tries to get the lock, and the pause between two of them.
const LOCK_TRIES: (u32, Duration) = (1_000, Duration::from_millis(10));

/// The tokens of a state directory.
#[derive(Debug, Clone)]
pub struct TokenFile {
    path: PathBuf,
}

/// The version alone: the other fields of a later version are not known.
#[derive(Deserialize)]
struct FormVersion {
    version: u32,
}

/// The content of the file. A field that is not known could be a limit of a token, so it is an error.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFileContent {
    version: u32,
    tokens: Vec<TokenEntry>,
}

impl TokenFile {
    /// The tokens of this state directory, which must exist when one is created or revoked. Reads nothing yet.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(FILE) }
    }

    /// The file's path; the file may be missing.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a token, and returns when its entry is durable. The token itself is not kept.
    pub fn create(&self, new: NewToken) -> Result<(TokenEntry, AccessToken), TokenError> {
        new.check()?;
        let _lock = self.lock()?;
        let mut entries = self.list()?;
        let is_taken = |text: &str| entries.iter().any(|entry| entry.is_called(text));
        if is_taken(&new.name) {
            return Err(TokenError::NameTaken(new.name));
        }
        if entries.len() >= MAX_TOKENS {
            return Err(TokenError::TooMany(entries.len()));
        }
        let mut id = random_id();
        while is_taken(&id) || id == new.name {
            id = random_id();
        }
        let token = AccessToken::generate();
        let entry = new.entry(id, &token);
        entries.push(entry.clone());
        self.replace(entries)?;
        Ok((entry, token))
    }

    /// The tokens in the order of their creation, expired ones too; none if there is no file.
    pub fn list(&self) -> Result<Vec<TokenEntry>, TokenFileError> {
        match files::read_regular(&self.path, MAX_BYTES).if_exists() {
            Ok(Some(bytes)) => self.parse(&bytes),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    /// Removes the token with this name or id, and returns its entry when that is durable.
    pub fn revoke(&self, name_or_id: &str) -> Result<TokenEntry, TokenError> {
        check_name("a token", name_or_id)?;
        let _lock = self.lock()?;
        let mut entries = self.list()?;
        let Some(at) = entries.iter().position(|entry| entry.is_called(name_or_id)) else {
            return Err(TokenError::Unknown(name_or_id.to_owned()));
        };
        let revoked = entries.remove(at);
        self.replace(entries)?;
        Ok(revoked)
    }

    /// The tokens in the content of the file.
    pub(super) fn parse(&self, bytes: &[u8]) -> Result<Vec<TokenEntry>, TokenFileError> {
        const REPAIR: &str = "repair the file, or remove it, which revokes all tokens";
        let error = |problem, remedy| TokenFileError { path: self.path.clone(), problem, remedy };
        let damaged = |problem: String| error(format!("it is damaged: {problem}"), REPAIR);
        let syntax_error = |error: serde_json::Error| damaged(error.to_string());
        let FormVersion { version } = serde_json::from_slice(bytes).map_err(syntax_error)?;
        if version != VERSION {
            let problem = format!("it has version {version}, and this program knows version {VERSION}");
            return Err(error(
                problem,
                "use the version of Hermod that wrote it, or remove it and create new tokens",
            ));
        }
        let content: TokenFileContent = serde_json::from_slice(bytes).map_err(syntax_error)?;
        check_entries(&content.tokens).map_err(damaged)?;
        Ok(content.tokens)
    }

    /// Replaces the file durably.
    fn replace(&self, tokens: Vec<TokenEntry>) -> Result<(), TokenFileError> {
        self.write(&TokenFileContent { version: VERSION, tokens }).at(&self.path).map_err(change_error)
    }

    fn write(&self, content: &TokenFileContent) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(content)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it would have more than 4 MiB"));
        }
        files::replace(&self.path, &self.path.with_extension("json.part"), &text)
    }

    /// Waits until no other process changes the tokens, which lasts until the returned file is dropped.
    fn lock(&self) -> Result<File, TokenFileError> {
        let path = self.path.with_extension("lock");
        files::lock(&path, LOCK_TRIES).at(&path).map_err(change_error)
    }

    /// The error of a file that is there and cannot be read.
    pub(super) fn unreadable(&self, error: &io::Error) -> TokenFileError {
        let remedy = "make it a readable file, or remove it, which revokes all tokens";
        TokenFileError { path: self.path.clone(), problem: format!("it cannot be read: {error}"), remedy }
    }
}

/// Checks what every reader relies on: names and ids, each of one token alone.
fn check_entries(entries: &[TokenEntry]) -> Result<(), String> {
    if entries.len() > MAX_TOKENS {
        return Err(format!("it has {} tokens, and at most {MAX_TOKENS} are kept", entries.len()));
    }
    let mut taken = BTreeSet::new();
    for (n, TokenEntry { id, name, .. }) in (1..).zip(entries) {
        if !is_id(id) {
            return Err(format!("the id of token {n} is not 8 hexadecimal digits"));
        }
        check_name("a token", name).map_err(|error| format!("token {n}: {error}"))?;
        if !taken.insert(id) || !taken.insert(name) {
            return Err(format!("token {n} has the name or id of another token"));
        }
    }
    Ok(())
}

/// The error of a change that was not made.
fn change_error(error: PathError) -> TokenFileError {
    TokenFileError {
        path: error.path,
        problem: format!("the tokens cannot be changed: {}", error.source),
        remedy: "make the state directory writable",
    }
}

//! The token of the control socket, in a file that only its user can read: created by the owner, read by its clients.

use std::{
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    clock,
    files::{self, read_regular_text},
    redaction,
    secret::{self, Secret},
};

/// The token's file, beside the socket.
const FILE: &str = "control.token";
/// Size limit of the file; a longer one is an error.
const MAX_BYTES: u64 = 1_024;

/// The secret that a client must send first. A sandbox of the user's may let a command reach the socket, but not read
/// this file.
#[derive(Clone)]
pub(super) struct ControlToken(String);

impl fmt::Debug for ControlToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl ControlToken {
    /// Creates a new token in a file that only this user can read.
    pub(super) fn create(state: &Path) -> io::Result<Self> {
        let token = Self(random_half() + &random_half());
        token.learn();
        let (path, part) = (Self::path(state), state.join("control.token.part"));
        // A left-over file could have other permissions than a new one.
        files::remove(&part)?;
        files::make(&part)?.write_all(token.0.as_bytes())?;
        fs::rename(&part, path)?;
        Ok(token)
    }

    /// Reads the token of the store's owner.
    pub(super) fn read(state: &Path) -> io::Result<Self> {
        let token = read_regular_text(&Self::path(state), MAX_BYTES).map(Self)?;
        token.learn();
        Ok(token)
    }

    fn learn(&self) {
        redaction::learn("control.token", &Secret::new(self.0.as_str()));
    }

    /// Path of the token's file.
    pub(super) fn path(state: &Path) -> PathBuf {
        state.join(FILE)
    }

    /// Compares in constant time for a given length.
    pub(super) fn is(&self, other: &str) -> bool {
        secret::is_same(self.0.as_bytes(), other.as_bytes())
    }

    /// The token itself, only for the greeting.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

/// 128 random bits in hexadecimal.
fn random_half() -> String {
    format!("{:032x}", u128::from_le_bytes(clock::random_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_new_each_time_and_for_its_user_alone() {
        let state = tempfile::tempdir().unwrap();
        let old = ControlToken::create(state.path()).unwrap();
        let new = ControlToken::create(state.path()).unwrap();
        assert!(new.is(ControlToken::read(state.path()).unwrap().reveal()));
        assert!(!new.is(old.reveal()));
        let mode = fs::metadata(ControlToken::path(state.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(format!("{new:?}"), "***");
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = ControlToken("0123".into());
        for (other, same) in [("0123", true), ("", false), ("012", false), ("01234", false), ("0124", false)]
        {
            assert_eq!(token.is(other), same, "{other}");
        }
    }
}

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The first 16 bytes of a SHA-256, as 32 hexadecimal digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hash([u8; 16]);

impl Hash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.part(bytes);
        hasher.finish()
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.as_bytes();
        let mut bytes = [0; 16];
        let pairs = digits.chunks_exact(2).zip(&mut bytes);
        if digits.len() != 32 || !text.is_ascii() {
            return Err(format!("`{text}` is not a hash: expected 32 hexadecimal digits"));
        }
        for (pair, byte) in pairs {
            let pair = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
            *byte =
                u8::from_str_radix(pair, 16).map_err(|error| format!("`{text}` is not a hash: {error}"))?;
        }
        Ok(Self(bytes))
    }
}

/// Hashes a sequence of parts; each part is preceded by its length, so that no two sequences collide by joining.
#[derive(Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds one part.
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// The hash of all parts.
    pub fn finish(self) -> Hash {
        let digest = self.0.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Hash(bytes)
    }
}

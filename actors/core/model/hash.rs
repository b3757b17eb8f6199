//! Hashes of views, arguments and artifacts, with their text forms.

use std::{fmt, str::FromStr};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest as _, Sha256};

/// The first bytes of a SHA-256, or all 32; two hexadecimal digits for each byte in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest<const BYTES: usize>([u8; BYTES]);

/// The first 16 bytes of the SHA-256 of parts; see [`Hasher`].
pub type Hash = Digest<16>;

/// The SHA-256 of a content.
pub type ContentHash = Digest<32>;

impl Hash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.part(bytes);
        hasher.finish()
    }
}

impl ContentHash {
    /// The hash of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }
}

impl<const BYTES: usize> Digest<BYTES> {
    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

impl<const BYTES: usize> fmt::Display for Digest<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

impl<const BYTES: usize> fmt::Debug for Digest<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const BYTES: usize> FromStr for Digest<BYTES> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; BYTES];
        let fits =
            text.len() == 2 * BYTES && HEXLOWER_PERMISSIVE.decode_mut(text.as_bytes(), &mut bytes).is_ok();
        let what = if BYTES == 32 { "SHA-256" } else { "hash" };
        let wrong = || format!("`{text}` is not a {what}: expected {} hexadecimal digits", 2 * BYTES);
        fits.then_some(Self(bytes)).ok_or_else(wrong)
    }
}

/// Hashes a content that arrives in pieces.
#[derive(Debug, Clone, Default)]
pub struct ContentHasher(Sha256);

impl ContentHasher {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The hash of all pieces.
    pub fn finish(self) -> ContentHash {
        Digest(self.0.finalize().into())
    }
}

/// Hashes a sequence of parts. Each part is preceded by its length, so that different sequences have different input.
#[derive(Debug, Clone, Default)]
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
        Digest(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_survives_text_and_json() {
        let hash = Hash::of(b"hermod");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().len(), 32);
        assert_eq!(serde_json::from_str::<Hash>(&serde_json::to_string(&hash).unwrap()).unwrap(), hash);
        let digits = "0123456789abcdef".repeat(2);
        assert_eq!(digits.parse::<Hash>().map(|hash| hash.to_string()), Ok(digits));
    }

    #[test]
    fn the_hash_of_a_content_is_that_of_its_pieces() {
        let mut hasher = ContentHasher::default();
        hasher.update(b"ab");
        hasher.update(b"c");
        let hash = hasher.finish();
        assert_eq!(hash, ContentHash::of(b"abc"));
        let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((hash.to_string().as_str(), digits.parse()), (digits, Ok(hash)));
        assert_eq!(serde_json::from_str::<ContentHash>(&format!("\"{digits}\"")).unwrap(), hash);
        assert!(digits[1..].parse::<ContentHash>().unwrap_err().contains("64 hexadecimal digits"));
    }

    #[test]
    fn what_is_no_hash_says_what_was_expected() {
        for text in ["", "0af", &"g".repeat(32), &"é".repeat(16), &"0".repeat(33)] {
            let expected = format!("`{text}` is not a hash: expected 32 hexadecimal digits");
            assert_eq!(text.parse::<Hash>(), Err(expected));
        }
    }
}

//! Hashes of views, arguments and artifacts, with their text forms.

use std::{fmt, str::FromStr};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest, Sha256};

/// Number of hexadecimal digits of a `Hash`.
const HASH_DIGITS: usize = 32;

/// The first 16 bytes of a SHA-256; 32 hexadecimal digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

/// Parses hexadecimal digits; `None` if the number of digits does not match.
fn read_digits<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let fits = text.len() == 2 * BYTES && HEXLOWER_PERMISSIVE.decode_mut(text.as_bytes(), &mut bytes).is_ok();
    fits.then_some(bytes)
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a hash: expected {HASH_DIGITS} hexadecimal digits");
        read_digits(text).map(Self).ok_or_else(wrong)
    }
}

/// The SHA-256 of a content; 64 hexadecimal digits in text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ContentHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a SHA-256: expected 64 hexadecimal digits");
        read_digits(text).map(Self).ok_or_else(wrong)
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
        ContentHash(self.0.finalize().into())
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
        Hash(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_survives_text_and_json() {
        let hash = Hash::of(b"hermod");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().len(), HASH_DIGITS);
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
        for text in
            ["", "0af", &"g".repeat(HASH_DIGITS), &"é".repeat(HASH_DIGITS / 2), &"0".repeat(HASH_DIGITS + 1)]
        {
            let expected = format!("`{text}` is not a hash: expected 32 hexadecimal digits");
            assert_eq!(text.parse::<Hash>(), Err(expected));
        }
    }
}

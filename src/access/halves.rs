//! A token in two halves, for browsers: one is kept in a cookie and one by the page. Each half alone is random, so that
//! neither a program that gets the cookie nor one that gets what the page has kept can present the token.

use std::fmt;

use data_encoding::HEXLOWER;

use super::token::{PREFIX, TOKEN_BYTES, random_id};
use crate::clock;

/// Both halves of a token, with the name that they share.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHalves {
    /// 8 hexadecimal digits that tell the halves of different tokens apart.
    pub id: String,
    /// The half for the cookie: 64 hexadecimal digits.
    pub cookie: String,
    /// The half for the page, in the same form.
    pub page: String,
}

impl fmt::Debug for TokenHalves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHalves({})", self.id)
    }
}

impl TokenHalves {
    /// New halves of a token; `None` if the text has not the form of one.
    pub fn of(token: &str) -> Option<Self> {
        let page = clock::random_bytes::<TOKEN_BYTES>();
        let cookie = exclusive_or(&bytes(token.strip_prefix(PREFIX)?)?, &page);
        Some(Self { id: random_id(), cookie: HEXLOWER.encode(&cookie), page: HEXLOWER.encode(&page) })
    }

    /// The token of two halves; `None` if one has not the form of a half. Halves of different tokens make no token.
    pub fn join(cookie: &str, page: &str) -> Option<String> {
        let token = exclusive_or(&bytes(cookie)?, &bytes(page)?);
        Some(format!("{PREFIX}{}", HEXLOWER.encode(&token)))
    }
}

fn bytes(digits: &str) -> Option<[u8; TOKEN_BYTES]> {
    HEXLOWER.decode(digits.as_bytes()).ok()?.try_into().ok()
}

fn exclusive_or(one: &[u8; TOKEN_BYTES], other: &[u8; TOKEN_BYTES]) -> [u8; TOKEN_BYTES] {
    std::array::from_fn(|at| one[at] ^ other[at])
}

#[cfg(test)]
mod tests {
    use super::{super::token::AccessToken, *};

    #[test]
    fn two_halves_make_the_token_and_neither_tells_of_it() {
        let token = AccessToken::generate();
        let one = TokenHalves::of(token.reveal()).unwrap();
        let other = TokenHalves::of(token.reveal()).unwrap();
        assert_eq!(TokenHalves::join(&one.cookie, &one.page).as_deref(), Some(token.reveal()));
        for half in [&one.cookie, &one.page] {
            assert_eq!(half.len(), 2 * TOKEN_BYTES);
            assert!(!token.reveal().contains(half.as_str()));
        }
        assert_ne!((&one.id, &one.cookie, &one.page), (&other.id, &other.cookie, &other.page));
        assert_ne!(TokenHalves::join(&one.cookie, &other.page).as_deref(), Some(token.reveal()));
    }

    #[test]
    fn other_texts_are_no_halves_and_no_tokens() {
        let half = "0".repeat(2 * TOKEN_BYTES);
        assert!(TokenHalves::join(&half, &half).is_some());
        for text in ["", "0", &half[2..], &format!("{half}00"), &"g".repeat(2 * TOKEN_BYTES)] {
            assert_eq!(TokenHalves::join(text, &half), None, "{text}");
            assert_eq!(TokenHalves::join(&half, text), None, "{text}");
            assert!(TokenHalves::of(text).is_none() && TokenHalves::of(&format!("{PREFIX}{text}")).is_none());
        }
    }
}

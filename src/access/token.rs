//! A token, and what is kept of it.

use std::{collections::BTreeSet, fmt};

use data_encoding::HEXLOWER;
use hermod_actors::model::{ContentHash, Timestamp, optional_rfc3339_time, rfc3339_time};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{error::TokenError, scope::Scope};
use crate::{
    clock,
    secret::{self, Secret},
};

/// Maximum characters of the name of a token or an agent.
pub(super) const MAX_NAME_CHARS: usize = 64;
/// The beginning of every token, by which people and scanners of secrets recognise one.
pub(super) const PREFIX: &str = "hermod_";
/// Random bytes of a token.
pub(super) const TOKEN_BYTES: usize = 32;
/// Random bytes of an id.
const ID_BYTES: usize = 4;

/// A token itself: `hermod_` and 64 hexadecimal digits of 256 random bits. It exists where it is created and where it is
/// presented, and in no file.
#[derive(Debug, Clone)]
pub struct AccessToken(Secret);

impl AccessToken {
    /// Bytes of a token's text.
    pub(super) const LENGTH: usize = PREFIX.len() + 2 * TOKEN_BYTES;

    /// A new token.
    pub(super) fn generate() -> Self {
        let digits = HEXLOWER.encode(&clock::random_bytes::<TOKEN_BYTES>());
        Self(Secret::new(format!("{PREFIX}{digits}")))
    }

    /// The token itself, only for the client that will present it.
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

/// The SHA-256 of a token.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct TokenHash(ContentHash);

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        Self(ContentHash::of(token.as_bytes()))
    }

    /// Compares in constant time.
    pub(super) fn is(&self, other: &Self) -> bool {
        secret::is_same(self.0.as_bytes(), other.0.as_bytes())
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    /// The error leaves the text out: it may be a token that was written there by hand.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let hash = String::deserialize(from)?.parse();
        hash.map(Self).map_err(|_| D::Error::custom("`sha256` is not a SHA-256 in hexadecimal digits"))
    }
}

/// What a new token is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its name: 1 to 64 characters, no control characters, not blank, and no other token's name or id.
    pub name: String,
    /// What it is good for; one scope or more.
    pub scopes: BTreeSet<Scope>,
    /// The names of the agents that it is limited to, one or more; `None` is no limit.
    pub agents: Option<BTreeSet<String>>,
    /// From then on it is no token any more; `None` is never.
    pub expires_at: Option<Timestamp>,
}

impl NewToken {
    /// Checks everything but the uniqueness of the name.
    pub(super) fn check(&self) -> Result<(), TokenError> {
        check_name("a token", &self.name)?;
        if self.scopes.is_empty() {
            return Err(TokenError::NoScope);
        }
        let Some(agents) = &self.agents else { return Ok(()) };
        if agents.is_empty() {
            return Err(TokenError::NoAgent);
        }
        agents.iter().try_for_each(|agent| check_name("an agent", agent))
    }

    /// The entry of the token, with the id `id`.
    pub(super) fn entry(self, id: String, token: &AccessToken) -> TokenEntry {
        let Self { name, scopes, agents, expires_at } = self;
        let (created_at, sha256) = (clock::now(), TokenHash::of(token.reveal()));
        TokenEntry { id, name, scopes, agents, created_at, expires_at, sha256 }
    }
}

pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), TokenError> {
    let is_name = !name.trim().is_empty()
        && name.chars().count() <= MAX_NAME_CHARS
        && !name.contains(|c: char| c.is_control());
    if is_name { Ok(()) } else { Err(TokenError::InvalidName(what)) }
}

/// What is kept of a token: not the token, only its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// 8 hexadecimal digits, no other token's id or name.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub scopes: BTreeSet<Scope>,
    /// The agents that it is limited to; `None` is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<BTreeSet<String>>,
    /// When it was created.
    #[serde(with = "rfc3339_time")]
    pub created_at: Timestamp,
    /// From then on it is no token any more; `None` is never.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_rfc3339_time")]
    pub expires_at: Option<Timestamp>,
    pub(super) sha256: TokenHash,
}

impl TokenEntry {
    /// True if the token has the scope, or `admin`, which includes all.
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// True if the token is not limited to other agents.
    pub fn may_use_agent(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.contains(agent))
    }

    /// True if the token's time is over.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// True if this is the name or the id of the token.
    pub(super) fn is_called(&self, name_or_id: &str) -> bool {
        self.name == name_or_id || self.id == name_or_id
    }
}

/// An id, not necessarily a new one.
pub(super) fn random_id() -> String {
    HEXLOWER.encode(&clock::random_bytes::<ID_BYTES>())
}

/// True if the text has the form of an id.
pub(super) fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 2 * ID_BYTES && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(scopes: &[Scope], agents: Option<&[&str]>) -> TokenEntry {
        let new = NewToken {
            name: "n".into(),
            scopes: scopes.iter().copied().collect(),
            agents: agents.map(|agents| agents.iter().map(|agent| (*agent).to_owned()).collect()),
            expires_at: None,
        };
        new.entry(random_id(), &AccessToken::generate())
    }

    #[test]
    fn a_token_is_new_each_time_and_does_not_show() {
        let (one, other) = (AccessToken::generate(), AccessToken::generate());
        let digits = one.reveal().strip_prefix("hermod_").unwrap();
        assert_eq!((digits.len(), one.reveal().len()), (64, AccessToken::LENGTH));
        assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && one.reveal() != other.reveal());
        let entry = entry(&[Scope::Read], None);
        let shown = format!("{one:?} {entry:?}");
        assert!(shown.contains("AccessToken(***)") && shown.contains("sha256: ***"), "{shown}");
        assert!(!shown.contains(digits) && !shown.contains(&entry.sha256.0.to_string()), "{shown}");
        assert!(is_id(&entry.id), "{}", entry.id);
    }

    #[test]
    fn admin_has_every_scope_and_others_only_their_own() {
        let check = |scopes: &[Scope], scope: Scope, expect: bool| {
            assert_eq!(entry(scopes, None).has(scope), expect, "{scopes:?} {scope}");
        };
        check(&[Scope::Read], Scope::Read, true);
        check(&[Scope::Read], Scope::Submit, false);
        check(&[Scope::Read, Scope::Steer], Scope::Steer, true);
        check(&[Scope::Submit, Scope::Approve], Scope::Admin, false);
        check(&[Scope::Admin], Scope::Approve, true);
        check(&[Scope::Admin], Scope::Admin, true);
        check(&[], Scope::Read, false);
    }

    #[test]
    fn a_token_may_be_limited_to_agents() {
        let check = |agents: Option<&[&str]>, agent: &str, expect: bool| {
            assert_eq!(entry(&[Scope::Admin], agents).may_use_agent(agent), expect, "{agents:?} {agent}");
        };
        check(None, "a", true);
        check(Some(&["a", "b"]), "b", true);
        check(Some(&["a", "b"]), "c", false);
        check(Some(&["a"]), "", false);
        check(Some(&[]), "a", false);
    }

    #[test]
    fn names_are_checked() {
        let check =
            |name: &str, expect: bool| assert_eq!(check_name("a token", name).is_ok(), expect, "{name:?}");
        check("reader", true);
        check("my phone, the old one", true);
        check(&"ä".repeat(64), true);
        check(&"ä".repeat(65), false);
        check("", false);
        check(" \u{a0}", false);
        check("a\nb", false);
        check("a\u{7f}", false);
        check("a\u{9b}", false);
        check(AccessToken::generate().reveal(), false);
    }
}

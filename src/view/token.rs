//! What `hermod tokens` shows of access tokens.

use std::collections::BTreeSet;

use hermod_actors::model::Timestamp;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::{
    encoding::{optional_time, time},
    schema::{ScopeName, Time},
};
use crate::access::{AccessToken, Scope, TokenEntry};

/// An access token, without the token itself and its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TokenView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is good for.
    #[schema(value_type = Vec<ScopeName>)]
    pub scopes: BTreeSet<Scope>,
    /// The agents that it is limited to; `None` is no limit.
    #[schema(value_type = Option<Vec<String>>, required)]
    pub agents: Option<BTreeSet<String>>,
    /// When it was created.
    #[serde(with = "time")]
    #[schema(value_type = Time)]
    pub created_at: Timestamp,
    /// From then on it is no token any more; `None` is never.
    #[serde(with = "optional_time")]
    #[schema(value_type = Option<Time>, required)]
    pub expires_at: Option<Timestamp>,
}

impl From<TokenEntry> for TokenView {
    fn from(entry: TokenEntry) -> Self {
        let TokenEntry { id, name, scopes, agents, created_at, expires_at, .. } = entry;
        Self { id, name, scopes, agents, created_at, expires_at }
    }
}

/// A new access token, the only view that has the token itself.
#[derive(Debug, Clone, Serialize)]
pub struct CreatedTokenView {
    /// What the list shows of it.
    #[serde(flatten)]
    pub entry: TokenView,
    /// The token itself.
    #[serde(serialize_with = "reveal")]
    pub token: AccessToken,
}

fn reveal<S: Serializer>(token: &AccessToken, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(token.reveal())
}

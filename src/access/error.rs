//! Why a token is not created, found or read. No error has the text of a token.

use std::path::PathBuf;

use super::token::MAX_NAME_CHARS;

/// Why a token cannot be created or revoked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The name of a token, or of an agent, is none. It is left out, because it may be a token.
    #[error(
        "the name of {0} has 1 to {MAX_NAME_CHARS} characters, is not blank, and has no control characters"
    )]
    InvalidName(&'static str),
    /// A token without scopes is good for nothing.
    #[error("a token needs a scope")]
    NoScope,
    /// A token for no agents is good for nothing.
    #[error("a token is limited to one agent or more, or not limited")]
    NoAgent,
    /// Another token has this name or id.
    #[error("there is a token `{0}` already; choose another name, or revoke that one")]
    NameTaken(String),
    /// No token has this name or id.
    #[error("there is no token `{0}`; `hermod tokens list` shows them")]
    Unknown(String),
    /// The file has its maximum of tokens.
    #[error("there are {0} tokens already, and no more are kept; revoke some")]
    TooMany(usize),
    /// The file cannot be read or changed.
    #[error(transparent)]
    File(#[from] TokenFileError),
}

/// Why the file of the tokens cannot be read or changed. Until it can, it is unknown which tokens there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}; {remedy}", path.display())]
pub struct TokenFileError {
    pub(super) path: PathBuf,
    pub(super) problem: String,
    pub(super) remedy: &'static str,
}

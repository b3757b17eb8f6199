//! Access tokens: what a client presents to a service of this state directory. [`TokenFile`] creates, lists and revokes
//! them, [`TokenVerifier`] finds out whether a presented text is one. What a token may do is in its [`TokenEntry`]; the
//! service asks it. Nothing here knows a protocol, a command line, or the store.

mod error;
mod halves;
mod scope;
#[cfg(test)]
mod tests;
mod token;
mod token_file;
mod verifier;

pub use error::{TokenError, TokenFileError};
pub use halves::TokenHalves;
pub use scope::Scope;
pub use token::{AccessToken, NewToken, TokenEntry};
pub use token_file::TokenFile;
pub use verifier::TokenVerifier;

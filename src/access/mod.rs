//! stub
use std::{path::Path, sync::Arc};
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Read,
    Submit,
    Steer,
    Approve,
    Admin,
}
impl Scope {
    pub fn name(self) -> &'static str {
        "x"
    }
}
#[derive(Debug)]
pub struct TokenEntry {
    pub id: String,
    pub name: String,
}
impl TokenEntry {
    pub fn has(&self, _: Scope) -> bool {
        true
    }
    pub fn may_use_agent(&self, _: &str) -> bool {
        true
    }
}
#[derive(Debug)]
pub struct TokenVerifier(Arc<TokenEntry>);
impl TokenVerifier {
    pub fn new(_: &Path) -> Self {
        Self(Arc::new(TokenEntry { id: "1".into(), name: "n".into() }))
    }
    pub fn verify(&self, t: &str) -> std::io::Result<Option<Arc<TokenEntry>>> {
        Ok((t == "t").then(|| self.0.clone()))
    }
}

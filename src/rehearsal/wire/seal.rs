//! Sealed reasoning, a stand-in for vendors' signatures and encrypted reasoning.

use base64::{Engine, prelude::BASE64_STANDARD};
use hermod_actors::model::Hasher;

/// Seals reasoning for the client to store and send back. The seal opens only for the same model, and only unchanged.
/// It is Base64, like vendors' seals.
pub(super) fn seal(model: &str, thought: &str) -> String {
    let mut sealed = digest(model, thought.as_bytes()).to_vec();
    sealed.extend(thought.as_bytes());
    BASE64_STANDARD.encode(sealed)
}

/// The reasoning that was sealed for `model`; `None` if `sealed` is invalid.
pub(super) fn open(model: &str, sealed: &str) -> Option<String> {
    let sealed = BASE64_STANDARD.decode(sealed).ok()?;
    let (mark, thought) = sealed.split_first_chunk::<16>()?;
    if *mark != digest(model, thought) {
        return None;
    }
    String::from_utf8(thought.to_vec()).ok()
}

fn digest(model: &str, thought: &[u8]) -> [u8; 16] {
    let mut hasher = Hasher::default();
    hasher.part(b"hermod rehearsal");
    hasher.part(model.as_bytes());
    hasher.part(thought);
    *hasher.finish().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_opens_for_its_model_unchanged() {
        let check = |model, sealed: &str, expected: Option<&str>| {
            assert_eq!(open(model, sealed).as_deref(), expected, "{model} {sealed}");
        };
        for thought in ["", "hm", "Là-bas\n"] {
            let sealed = seal("m", thought);
            check("m", &sealed, Some(thought));
            check("n", &sealed, None);
            check("m", &sealed[4..], None);
            check("m", &format!("{sealed}AAAA"), None);
        }
        check("m", "", None);
        check("m", "no base64", None);
    }
}

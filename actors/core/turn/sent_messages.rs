//! What the tool `message` has sent in the run under way, folded from the ends of its calls. A target does not get the same
//! text again as the result of the run.

use std::sync::Arc;

use imbl::Vector;

use crate::{
    model::Hash,
    policy::{
        message::{comparable_text, parse_message},
        parse_arguments,
    },
};

/// Most messages that are remembered, the last ones.
const MAX_SENT: usize = 64;

/// The messages of a run: the target of each, and the hash of its text without white space.
#[derive(Debug, Clone, Default)]
pub(super) struct SentMessages(Vector<(Arc<str>, Hash)>);

impl SentMessages {
    fn push(&mut self, target: &str, text: &str) {
        if self.0.len() >= MAX_SENT {
            self.0.pop_front();
        }
        self.0.push_back((target.into(), hash(text)));
    }

    /// Notes the message of a call of the tool that ended well, by the arguments with which it was made.
    pub(super) fn note(&mut self, arguments: &str) {
        let arguments = parse_arguments(arguments).ok();
        if let Some(message) = arguments.and_then(|arguments| parse_message(&arguments).ok()) {
            self.push(&message.target, &message.text);
        }
    }

    /// Whether this text was sent to this target. White space does not count.
    pub(super) fn has(&self, target: &str, text: &str) -> bool {
        let mut of_target = self.0.iter().filter(|(known, _)| **known == *target).peekable();
        of_target.peek().is_some() && {
            let hash = hash(text);
            of_target.any(|(_, sent)| *sent == hash)
        }
    }
}

fn hash(text: &str) -> Hash {
    Hash::of(comparable_text(text).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_known_by_its_target_and_its_words() {
        let mut sent = SentMessages::default();
        let check = |sent: &SentMessages, target: &str, text: &str, expect: bool| {
            assert_eq!(sent.has(target, text), expect, "{target} {text:?}");
        };
        check(&sent, "ops", "", false);
        sent.push("ops", "all  is\nwell");
        check(&sent, "ops", " all is well\n", true);
        check(&sent, "dev", "all is well", false);
        check(&sent, "ops", "all is", false);
        (0..MAX_SENT).for_each(|n| sent.push("dev", &n.to_string()));
        check(&sent, "ops", "all is well", false);
        check(&sent, "dev", "0", true);
    }
}

//! Search of a conversation by text: in the tasks, the messages and the answers of a session. Pure.

use hermod_actors::model::{Body, Record};

use crate::view::SessionSummaryView;

/// Characters of an excerpt before and after the place that was found.
const BEFORE: usize = 60;
const AFTER: usize = 140;

/// A text that is searched, whatever its case.
#[derive(Debug)]
pub(super) struct TextSearch {
    needle: String,
}

impl TextSearch {
    /// A search; `None` for a blank text, which is in everything.
    pub(super) fn new(text: &str) -> Option<Self> {
        let needle = text.trim().to_lowercase();
        (!needle.is_empty()).then_some(Self { needle })
    }

    /// True if the text is in the key or the title of a session.
    pub(super) fn is_named(&self, session: &SessionSummaryView) -> bool {
        let title = session.title.as_deref().unwrap_or_default();
        [&session.key, title].into_iter().any(|name| name.to_lowercase().contains(&self.needle))
    }

    /// What stands around the text in a record; `None` if it is not there.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds have no text of a person or a model")]
    pub(super) fn in_record(&self, record: &Record) -> Option<String> {
        match &record.body {
            Body::RunAccepted(accepted) => self.find(&accepted.input),
            Body::ModelAnswered(answered) => self.find(&answered.message.text),
            Body::MessageSteered(message) => self.find(&message.text),
            Body::MessageCollected(message) => self.find(&message.text),
            _ => None,
        }
    }

    /// What stands around the text in another one; `None` if it is not there.
    pub(super) fn find(&self, text: &str) -> Option<String> {
        let lower = text.to_lowercase();
        let at = lower.find(&self.needle)?;
        // A character may have another length in lower case, so characters are counted.
        let at = lower.get(..at)?.chars().count();
        let first = at.saturating_sub(BEFORE);
        let cut = (first > 0).then_some('…');
        let mut rest = text.chars().skip(first);
        let part: String = rest.by_ref().take(at - first + AFTER).collect();
        let end = rest.next().map(|_| '…');
        Some(cut.into_iter().chain(once_each(&part)).chain(end).collect())
    }
}

/// The characters of a text, with one space for each run of white space.
fn once_each(text: &str) -> impl Iterator<Item = char> {
    let words = text.split_whitespace();
    words.enumerate().flat_map(|(n, word)| (n > 0).then_some(' ').into_iter().chain(word.chars()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_with_what_stands_around_it() {
        let check = |needle: &str, text: &str, expect: Option<&str>| {
            let found = TextSearch::new(needle).unwrap().find(text);
            assert_eq!(found.as_deref(), expect, "{needle} in {text}");
        };
        check("disk", "The DISK is full", Some("The DISK is full"));
        check(" Disk ", "the\n\tdisk", Some("the disk"));
        check("cpu", "the disk", None);
        check("straße", "Die Straße ist lang", Some("Die Straße ist lang"));
        check("x", &format!("{}x", "İ".repeat(3)), Some("İİİx"));
        let long = format!("{}needle{}", "a ".repeat(100), "b".repeat(300));
        let found = TextSearch::new("needle").unwrap().find(&long).unwrap();
        assert!(found.starts_with("…a a") && found.contains("needlebbb") && found.ends_with("b…"), "{found}");
        assert!(found.chars().count() <= BEFORE + AFTER + 2, "{found}");
        assert!(TextSearch::new(" \n").is_none());
    }
}

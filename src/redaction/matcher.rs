//! Finds the forms of all known secrets in one pass, and the longest end of a text that may become one. Immutable.

use std::{borrow::Cow, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// A form of a secret, and the text that takes its place.
pub(super) type Form = (String, Arc<str>);

/// Matches the forms of a set of secrets.
#[derive(Default)]
pub(super) struct Matcher {
    /// `None` if there is no form.
    automaton: Option<AhoCorasick>,
    /// The forms, sorted and without repeats.
    forms: Vec<Form>,
    /// Whether a form begins with this byte.
    begins: Vec<bool>,
    /// Bytes of the longest form.
    longest: usize,
}

impl fmt::Debug for Matcher {
    /// Shows no form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").field("forms", &self.forms.len()).finish_non_exhaustive()
    }
}

impl Matcher {
    /// A matcher of these forms; of equal ones the first counts. `None` if they are too many to be searched at once.
    pub(super) fn new(mut forms: Vec<Form>) -> Option<Self> {
        forms.sort_by(|(one, _), (other, _)| one.cmp(other));
        forms.dedup_by(|(next, _), (first, _)| next == first);
        if forms.is_empty() {
            return Some(Self::default());
        }
        let mut begins = vec![false; 256];
        for first in forms.iter().filter_map(|(form, _)| form.bytes().next()) {
            begins[usize::from(first)] = true;
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(forms.iter().map(|(form, _)| form));
        let longest = forms.iter().map(|(form, _)| form.len()).max().unwrap_or(0);
        Some(Self { automaton: Some(automaton.ok()?), forms, begins, longest })
    }

    /// `text` with every form replaced; borrowed if it has none. A form begins and ends with whole characters, so a
    /// text stays valid.
    pub(super) fn redact<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let (redacted, held) = self.redact_settled(text, true);
        debug_assert!(held == text.len(), "nothing is held back at the end");
        redacted
    }

    /// The redacted beginning of `text`, and its length in `text`. The rest may be the beginning of a form; it is
    /// shorter than the longest form, and empty if the text `is_whole`.
    pub(super) fn redact_settled<'t>(&self, text: &'t [u8], is_whole: bool) -> (Cow<'t, [u8]>, usize) {
        let Some(automaton) = &self.automaton else { return (Cow::Borrowed(text), text.len()) };
        let open_from = |from: usize| if is_whole { text.len() } else { self.open_form(text, from) };
        let (mut open, mut at, mut redacted) = (open_from(0), 0, Vec::new());
        for found in automaton.find_iter(text) {
            // An earlier form may still become whole: it would begin before this one.
            if found.start() >= open {
                break;
            }
            redacted.extend_from_slice(&text[at..found.start()]);
            redacted.extend_from_slice(self.forms[found.pattern().as_usize()].1.as_bytes());
            at = found.end();
            if open < at {
                open = open_from(at);
            }
        }
        if at == 0 {
            return (Cow::Borrowed(&text[..open]), open);
        }
        redacted.extend_from_slice(&text[at..open]);
        (Cow::Owned(redacted), open)
    }

    /// The first position from `from` on at which the rest of `text` is the beginning of a form; else its length.
    fn open_form(&self, text: &[u8], from: usize) -> usize {
        let earliest = text.len().saturating_sub(self.longest.saturating_sub(1)).max(from);
        let is_open = |at: &usize| self.begins[usize::from(text[*at])] && self.begins_with(&text[*at..]);
        (earliest..text.len()).find(is_open).unwrap_or(text.len())
    }

    /// Whether a form begins with `text` and is longer.
    fn begins_with(&self, text: &[u8]) -> bool {
        let first = self.forms.partition_point(|(form, _)| form.as_bytes() <= text);
        self.forms.get(first).is_some_and(|(form, _)| form.as_bytes().starts_with(text))
    }
}

//! Beginnings of long texts, plain or in quotes, for messages.

use std::borrow::Cow;

/// The text, or its first `max` characters and `…`.
pub(crate) fn first_chars(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// The text in quotes, or its first `max` characters in quotes and `…`.
pub(crate) fn quoted_first_chars(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!((first_chars("äöü", 2), first_chars("äö", 2)), ("äö…".into(), "äö".into()));
        assert_eq!(quoted_first_chars("ä\nü", 2), "\"ä\\n\"…");
        assert_eq!(quoted_first_chars("äö", 2), "\"äö\"");
    }
}

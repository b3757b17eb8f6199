//! Titles of sessions: a model's answer as one short line. Pure.

use super::sanitize::SanitizedText;

/// Most characters of a title.
const MAX_TITLE_CHARS: usize = 60;
/// What models put before a title, in lower case.
const PREFIX: &str = "title:";

/// The title in a model's answer: its first line that is not blank, without decoration, cut after a word; `None` if
/// nothing is left.
pub fn clean_title(answer: &str) -> Option<String> {
    let is_decoration =
        |c: char| c.is_whitespace() || matches!(c, '#' | '*' | '_' | '`' | '"' | '“' | '”' | '„');
    let undecorated = |line: &str| {
        let line = line.trim_matches(is_decoration);
        let rest = line.get(PREFIX.len()..).filter(|_| line[..PREFIX.len()].eq_ignore_ascii_case(PREFIX));
        rest.unwrap_or(line).trim_matches(is_decoration).to_owned()
    };
    let line = answer.lines().map(undecorated).find(|line| !line.is_empty())?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let line = SanitizedText::strict(&words.join(" ")).into_owned();
    Some(shortened(line.strip_suffix('.').filter(|rest| !rest.ends_with('.')).unwrap_or(&line)))
}

/// At most `MAX_TITLE_CHARS` characters, cut after a word if there is one in the second half.
fn shortened(line: &str) -> String {
    if line.chars().count() <= MAX_TITLE_CHARS {
        return line.to_owned();
    }
    let cut: String = line.chars().take(MAX_TITLE_CHARS - 1).collect();
    let end = cut.rfind(' ').filter(|end| *end >= cut.len() / 2).unwrap_or(cut.len());
    format!("{}…", &cut[..end])
}

/// The beginning of a text, of at most this number of bytes, with a mark where it is cut.
pub(crate) fn excerpt(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{}\n[…]", &text[..text.floor_char_boundary(max_bytes)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        let check = |answer: &str, expect: Option<&str>| {
            assert_eq!(clean_title(answer).as_deref(), expect, "{answer:?}");
        };
        check("", None);
        check(" \n\"\" \n", None);
        check("Keel of the ship", Some("Keel of the ship"));
        check("\n# Title: \"Keel of  the ship.\"\nIt is about…", Some("Keel of the ship"));
        check("**TITLE: Keel**", Some("Keel"));
        check("Und so weiter...", Some("Und so weiter..."));
        check("a\u{202e}b", Some("a<U+202E>b"));
        check(&"ä".repeat(60), Some(&"ä".repeat(60)));
        check(&"ä".repeat(61), Some(&format!("{}…", "ä".repeat(59))));
        let words = "Eleven words of which the last do not fit into sixty characters";
        check(words, Some("Eleven words of which the last do not fit into sixty…"));
    }

    #[test]
    fn an_excerpt_ends_at_a_character() {
        assert_eq!(excerpt("äöü", 6), "äöü");
        assert_eq!(excerpt("äöü", 5), "äö\n[…]");
    }
}

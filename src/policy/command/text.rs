//! The canonical text of a command.

use super::script::{INDEXES, REFERENCE};

/// The words with a space between them, quoted only if they must be.
pub(super) fn canonical(words: &[String]) -> String {
    let mut text = String::new();
    for (n, word) in words.iter().enumerate() {
        if n > 0 {
            text.push(' ');
        }
        push_quoted(&mut text, word);
    }
    text
}

fn push_quoted(text: &mut String, word: &str) {
    let is_special = |c: char| c.is_whitespace() || "'\"`;&|<>()\\".contains(c);
    let shown = word.chars().filter(|c| !INDEXES.contains(c));
    if !word.is_empty() && !word.contains(is_special) {
        return text.extend(shown);
    }
    text.push('\'');
    for c in shown {
        match c {
            '\'' => text.push_str(r"'\''"),
            c => text.push(c),
        }
    }
    text.push('\'');
}

/// True if the word, or the file name at its end, is not known.
pub(super) fn is_unknown_name(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.contains(REFERENCE) || file.contains("${") || file == "{}"
}

/// True if characters in the text hide from a person what runs: control sequences, invisible characters, and letters
/// of double width that look like others.
pub(super) fn hides_text(text: &str) -> bool {
    text.chars().any(|c| match c {
        '\n' | '\t' | '\r' => false,
        '\u{200b}'
        | '\u{2060}'..='\u{2064}'
        | '\u{feff}'
        | '\u{ad}'
        | '\u{e0000}'..='\u{e007f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{180e}'
        | '\u{3164}'
        | '\u{ff21}'..='\u{ff3a}'
        | '\u{ff41}'..='\u{ff5a}'
        | '\u{ff0f}' => true,
        c => c.is_control(),
    })
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn a_canonical_text_quotes_only_what_needs_it() {
        let check = |words: &[&str], expected: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(canonical(&words), expected);
        };
        check(&["git", "commit", "-m", "a b"], "git commit -m 'a b'");
        check(&["echo", "", "it's"], r"echo '' 'it'\''s'");
        check(&["rm", "*.o", "${X}", "\u{fffc}\u{f0001}"], "rm *.o ${X} \u{fffc}");
    }
}

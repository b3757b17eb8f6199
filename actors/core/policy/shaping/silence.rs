//! Answers that ask for no delivery: the whole text is `NO_REPLY`.

/// The answer of a model that has nothing to say, in any case.
pub const NO_REPLY: &str = "NO_REPLY";

/// Most bytes of a text that may be silent, with the white space around it. It bounds what is held back.
const MAX_SILENT_BYTES: usize = 1_024;

/// Whether the whole text is [`NO_REPLY`], in any case and with white space around it.
pub fn is_silent_reply(text: &str) -> bool {
    text.len() <= MAX_SILENT_BYTES && text.trim().eq_ignore_ascii_case(NO_REPLY)
}

/// Whether a text that begins like this may become a silent one. True for a silent one too.
pub fn may_become_silent(text: &str) -> bool {
    let word = text.trim_start();
    let letters = word.trim_end();
    let is_beginning = NO_REPLY.get(..letters.len()).is_some_and(|part| part.eq_ignore_ascii_case(letters));
    let is_unbroken = letters.len() == word.len() || letters.len() == NO_REPLY.len();
    text.len() <= MAX_SILENT_BYTES && is_beginning && is_unbroken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_text_is_silent() {
        let check = |text: &str, expect: bool| assert_eq!(is_silent_reply(text), expect, "{text:?}");
        for text in ["NO_REPLY", "no_reply", "No_Reply", " \n\tNO_REPLY \n", "\u{a0}NO_REPLY"] {
            check(text, true);
        }
        for text in ["", " ", "NO_REPLY.", "NO REPLY", "NO_REPLY NO_REPLY", "I say NO_REPLY", "`NO_REPLY`"] {
            check(text, false);
        }
        check(&format!("NO_REPLY{}", " ".repeat(MAX_SILENT_BYTES)), false);
    }

    #[test]
    fn a_beginning_is_held_until_it_is_another_text() {
        let check = |text: &str, expect: bool| assert_eq!(may_become_silent(text), expect, "{text:?}");
        for text in ["", " ", "N", "n", " no", "NO_", "no_repl", "NO_REPLY", "NO_REPLY \n"] {
            check(text, true);
        }
        for text in ["Now", "NO ", "NO_REPLY.", "NO_REPLY x", "NO_R E", "é", "NO_REPLé"] {
            check(text, false);
        }
        let silent = "  no_Reply \n";
        for (end, _) in silent.char_indices() {
            check(&silent[..end], true);
        }
        check(&" ".repeat(MAX_SILENT_BYTES + 1), false);
    }
}

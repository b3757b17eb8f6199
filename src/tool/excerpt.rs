/// Characters of an argument in an error.
const MAX_CHARS: usize = 400;

/// An argument in quotes, truncated if it is long.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

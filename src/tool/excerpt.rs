/// Characters of an argument that an error shows.
const MAX_CHARS: usize = 400;

/// An argument in quotes, of a long one its beginning.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

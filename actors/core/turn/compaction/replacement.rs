//! The text that a view shows in place of its removed part: the first request, the summary or drop notice, and the
//! to-do list.

use std::sync::Arc;

use super::MAX_FIRST_REQUEST_BYTES;
use crate::model::{ContextCompacted, RUNTIME_TEXT_PREFIX};

/// The first request, the summary and the to-do list, as the model reads them. `first` is the first user message of the
/// conversation, if its round is removed.
pub(in crate::turn) fn replacement_text(
    compacted: &ContextCompacted,
    first: Option<&str>,
    todo: Option<&str>,
) -> Arc<str> {
    let first = first.map(|first| {
        let end = first.floor_char_boundary(MAX_FIRST_REQUEST_BYTES);
        let cut = if end < first.len() { " [cut]" } else { "" };
        format!("{}{cut}", &first[..end])
    });
    let mut text = format!(
        "\n\n{RUNTIME_TEXT_PREFIX}the older part of this conversation was left out to save room. What follows stands for it: facts \
         to work with, and no new orders.\n"
    );
    for (title, part) in [
        ("The first request of the conversation", first.as_deref()),
        ("What was done so far", compacted.summary.as_deref()),
        ("The todo list", todo),
    ] {
        if let Some(part) = part {
            ["\n## ", title, "\n", part, "\n"].iter().for_each(|piece| text.push_str(piece));
        }
    }
    text.push_str("\nEnd of what stands for it; go on from here.]");
    text.into()
}

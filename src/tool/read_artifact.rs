//! The tool `read_artifact`: reads a page of an output that was too long for its result.

use hermod_actors::{
    SanitizedText,
    model::{CallEnd, CallStatus, EffectClass, MAX_RESULT_BYTES},
    port::{ArtifactError, BadArguments, Excerpt},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::typed_tool::{ToolContext, TypedTool};
use crate::process::without_cut_end;

/// Default size of a page, in bytes.
const DEFAULT_PAGE_BYTES: usize = 40_000;
/// Limit of a page's text in bytes, without the remark.
const MAX_PAGE_BYTES: usize = MAX_RESULT_BYTES - 500;

/// Reads an output that was too long for its result, page by page.
#[derive(Debug)]
pub(super) struct ReadArtifact;

/// What to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The handle, as the result said it.
    handle: String,
    /// The first byte to read, counted from 0.
    #[schemars(range(max = 1_000_000_000_000_u64))]
    offset: Option<u64>,
    /// How many bytes to read at most; 40000 if absent.
    #[schemars(range(min = 1, max = 49_000))]
    limit: Option<usize>,
}

impl TypedTool for ReadArtifact {
    const NAME: &'static str = "read_artifact";
    const DESCRIPTION: &'static str = "Reads from an output of this conversation that was too long to be shown whole; \
        a remark in brackets at the end says how to read on.";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = Arguments;

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        let Arguments { handle, offset, limit } = arguments;
        let (offset, limit) = (offset.unwrap_or(0), limit.unwrap_or(DEFAULT_PAGE_BYTES));
        match context.artifacts.read(&handle, offset, limit).await {
            Ok(excerpt) if offset > excerpt.total => CallEnd::from(BadArguments {
                field: Some("offset".into()),
                error: format!("`offset` {offset} is past the end: {handle} has {} bytes", excerpt.total),
                hint: "use a smaller `offset`".into(),
            }),
            Ok(excerpt) => CallEnd::ok(page(&excerpt, offset)),
            Err(error) => unreadable_end(&handle, &error),
        }
    }
}

fn unreadable_end(handle: &str, error: &ArtifactError) -> CallEnd {
    let text = error.to_string();
    let (error, field, hint) = match error {
        ArtifactError::NotFound(_) => {
            (text, Some("handle"), "give a handle exactly as an earlier result of this conversation says it")
        }
        ArtifactError::Removed { .. } => (text, None, "make the output again if it is still needed"),
        ArtifactError::Altered(_) => (
            text,
            None,
            "make the output again if it is still needed; `hermod store check` tells the operator what else is damaged",
        ),
        ArtifactError::Unavailable(error) => {
            let error = format!("{handle} cannot be read: {error}");
            (error, None, "make the output again, shorter; if it stays, the operator has to look")
        }
    };
    CallEnd::error(CallStatus::Error, &error, field, hint)
}

/// The sanitized text of an excerpt, as far as it fits, with the next offset.
fn page(excerpt: &Excerpt, offset: u64) -> String {
    let Excerpt { bytes, total } = excerpt;
    let mut part = &bytes[..];
    let visible = loop {
        if offset + (part.len() as u64) < *total {
            // The next page begins with a whole character, unless this page would be empty.
            part = Some(without_cut_end(part)).filter(|whole| !whole.is_empty()).unwrap_or(part);
        }
        let visible = SanitizedText::of(part);
        if visible.text.len() <= MAX_PAGE_BYTES {
            break visible;
        }
        part = &part[..part.len() / 2];
    };
    let end = offset + part.len() as u64;
    let replaced = visible.remark().map(|remark| format!("\n[{remark}]")).unwrap_or_default();
    let more = match end < *total {
        true => format!("call again with offset {end}"),
        false => "this is the end".into(),
    };
    let more = format!("\n[bytes {offset}-{end} of {total}; {more}]");
    visible.text + &replaced + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all pages of `whole`, and checks that no byte is missing or repeated.
    #[track_caller]
    fn check(whole: &str, limit: usize) {
        let (mut text, mut offset, mut pages) = (String::new(), 0, 0);
        loop {
            let bytes = &whole.as_bytes()[offset..whole.len().min(offset + limit)];
            let excerpt = Excerpt { bytes: bytes.to_vec().into(), total: whole.len() as u64 };
            let page = page(&excerpt, offset as u64);
            assert!(page.len() <= MAX_RESULT_BYTES);
            let (content, remark) = page.rsplit_once("\n[bytes ").expect("it says where it is");
            text.push_str(content);
            pages += 1;
            let Some((_, next)) = remark.split_once("call again with offset ") else { break };
            offset = next.strip_suffix(']').and_then(|next| next.parse().ok()).expect("a number");
        }
        assert!(pages >= whole.len().div_ceil(limit), "{pages} pages");
        assert_eq!(text, whole);
    }

    #[test]
    fn pages_join_to_the_whole() {
        check("", 10);
        check("one two three", 5);
        check(&"é漢🦀x".repeat(1_000), 7);
        check(&"é漢🦀x".repeat(30_000), DEFAULT_PAGE_BYTES);
    }

    #[test]
    fn what_takes_more_room_when_visible_makes_shorter_pages() {
        let bytes = vec![0x1b; DEFAULT_PAGE_BYTES];
        let page = page(&Excerpt { bytes: bytes.into(), total: DEFAULT_PAGE_BYTES as u64 }, 0);
        assert!(page.len() <= MAX_RESULT_BYTES && page.starts_with("␛␛"));
        assert!(
            page.ends_with("[bytes 0-10000 of 40000; call again with offset 10000]"),
            "{}",
            &page[page.len() - 99..]
        );
    }

    #[test]
    fn binary_is_no_dead_end() {
        let bytes = vec![0x80; 10];
        let page = page(&Excerpt { bytes: bytes.into(), total: 30 }, 10);
        assert!(
            page.starts_with("��") && page.ends_with("[bytes 10-20 of 30; call again with offset 20]"),
            "{page}"
        );
    }
}

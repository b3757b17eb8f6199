//! Fenced code blocks of Markdown (CommonMark): which of them is open at a place of a text.

/// A fence that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence {
    /// The backticks or tildes.
    pub(super) marker: String,
    /// The rest of the opening line.
    info: String,
}

/// Most bytes of an info string that is repeated where a fence is opened again.
const MAX_INFO_BYTES: usize = 64;
/// Most letters of a marker that is repeated; a longer one opens no fence here.
const MAX_MARKER_BYTES: usize = 64;
const MIN_MARKER_BYTES: usize = 3;
/// Most spaces before a marker.
const MAX_INDENT_BYTES: usize = 3;

impl Fence {
    /// The fence that a line opens.
    fn opened_by(line: &str) -> Option<Self> {
        let (marker, info) = marked(line)?;
        // A line with backticks behind is code within a text.
        let is_fence = !(marker.starts_with('`') && info.contains('`'));
        let end = info.char_indices().map(|(at, letter)| at + letter.len_utf8());
        let end = end.take_while(|end| *end <= MAX_INFO_BYTES).last().unwrap_or(0);
        is_fence.then(|| Self { marker: marker.to_owned(), info: info[..end].trim().to_owned() })
    }

    /// Whether a line closes the fence.
    fn is_closed_by(&self, line: &str) -> bool {
        let Some((marker, rest)) = marked(line) else { return false };
        marker.len() >= self.marker.len() && marker.starts_with(&self.marker) && rest.trim().is_empty()
    }

    /// The line that opens the fence again.
    pub(super) fn opening_line(&self) -> String {
        format!("{}{}\n", self.marker, self.info)
    }
}

/// The marker of a line and what follows it; `None` if the line has none. Reads only the beginning of the line.
fn marked(line: &str) -> Option<(&str, &str)> {
    let run = |text: &str, letter: u8, max: usize| {
        text.bytes().take(max + 1).take_while(|byte| *byte == letter).count()
    };
    let indent = run(line, b' ', MAX_INDENT_BYTES);
    let text = &line[indent..];
    let letter = text.bytes().next().filter(|letter| matches!(letter, b'`' | b'~'))?;
    let length = run(text, letter, MAX_MARKER_BYTES);
    let is_marker = indent <= MAX_INDENT_BYTES && (MIN_MARKER_BYTES..=MAX_MARKER_BYTES).contains(&length);
    is_marker.then(|| text.split_at(length))
}

/// The lines of a text that change which fence is open.
#[derive(Debug)]
pub(super) struct FenceScan {
    /// Each place with the fence that is open from there on; in order.
    changes: Vec<(usize, Option<OpenFence>)>,
}

/// A fence that is open at a place of a text.
#[derive(Debug, Clone)]
pub(super) struct OpenFence {
    pub(super) fence: Fence,
    /// Where its code begins: behind its opening line, or where the text begins.
    pub(super) code_from: usize,
}

impl FenceScan {
    /// Scans a text, at whose beginning `open` is open, so that places up to `to` can be asked for. The last line of the
    /// text may be a part of one. The work depends on `to`, not on the length of the text.
    pub(super) fn new(text: &str, to: usize, open: Option<&Fence>) -> Self {
        let mut changes = Vec::new();
        let mut open = open.cloned().map(|fence| OpenFence { fence, code_from: 0 });
        changes.push((0, open.clone()));
        let mut start = 0;
        for line in text[..to].split_inclusive('\n') {
            let line = whole_line(text, start, line);
            let (end, content) = (start + line.len(), line.trim_end_matches(['\n', '\r']));
            match &open {
                None => {
                    if let Some(fence) = Fence::opened_by(content) {
                        open = Some(OpenFence { fence, code_from: end });
                        // A cut within the line is inside of the fence.
                        changes.push((start + 1, open.clone()));
                    }
                }
                Some(OpenFence { fence, .. }) if fence.is_closed_by(content) => {
                    open = None;
                    changes.push((end, None));
                }
                Some(_) => {}
            }
            start = end;
        }
        Self { changes }
    }

    /// The fence that is open at a place.
    pub(super) fn fence_at(&self, at: usize) -> Option<OpenFence> {
        let change = self.changes.iter().rev().find(|(from, _)| *from <= at);
        change.and_then(|(_, open)| open.clone())
    }

    /// Whether a block may end at this place: no fence is open there, and the rest does not look like one.
    pub(super) fn may_cut(&self, text: &str, at: usize) -> bool {
        let is_line_start = at == 0 || text[..at].ends_with('\n');
        // What is within a line begins a line of the next block.
        let looks_alike = || {
            let rest = text[at..].trim_start_matches(' ');
            rest.is_empty() || rest.starts_with(['`', '~'])
        };
        self.fence_at(at).is_none() && (is_line_start || !looks_alike())
    }
}

/// The whole of a line of which `scanned` is the beginning, if it may be that of a fence.
fn whole_line<'a>(text: &'a str, start: usize, scanned: &'a str) -> &'a str {
    if scanned.ends_with('\n') || marked(&text[start..]).is_none() {
        return scanned;
    }
    text[start..].split_inclusive('\n').next().unwrap_or(scanned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_open_and_close_fences() {
        let check = |text: &str, expect: Option<&str>| {
            let open = FenceScan::new(text, text.len(), None).fence_at(text.len());
            assert_eq!(open.map(|open| open.fence.opening_line()).as_deref(), expect, "{text:?}");
        };
        check("a\n```rust\nfn", Some("```rust\n"));
        check("```\n", Some("```\n"));
        check("```", Some("```\n"));
        check("```\na\n```", None);
        check("```\na\n```\n", None);
        check("```\na\n``\n", Some("```\n"));
        check("````\n```\n", Some("````\n"));
        check("````\n`````  \n", None);
        check("~~~ a b\n```\n", Some("~~~a b\n"));
        check("~~~\n~~~ x\n", Some("~~~\n"));
        check("   ```\n", Some("```\n"));
        check("    ```\n", None);
        check("```a`b```\n", None);
        check("a ```\n", None);
    }

    #[test]
    fn a_cut_is_outside_of_fences() {
        let text = "a\n```\nb\n```\nc";
        let scan = FenceScan::new(text, text.len(), None);
        let places = (0..text.len()).filter(|at| scan.may_cut(text, *at)).collect::<Vec<_>>();
        assert_eq!(places, [0, 1, 2, 12]);
    }

    #[test]
    fn a_rest_that_looks_like_a_fence_begins_no_block() {
        let text = "see ```x``` there";
        let scan = FenceScan::new(text, text.len(), None);
        assert!(!scan.may_cut(text, 4) && scan.may_cut(text, 12));
    }
}

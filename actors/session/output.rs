//! Prepares the result of a tool call before it is recorded: hidden characters become visible, and long output is
//! shortened. The whole output is kept as an artifact.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{CallEnd, MAX_RESULT_BYTES},
    policy::SanitizedText,
    port::AttemptArtifacts,
    session::watchdog,
};

/// Most bytes of a longer output that are kept from its beginning.
const HEAD_BYTES: usize = MAX_RESULT_BYTES * 3 / 5;
/// Most bytes of a longer output that are kept from its end.
const TAIL_BYTES: usize = MAX_RESULT_BYTES * 3 / 10;

/// Makes the end of a call fit the view. Output that does not fit is on disk before this resolves.
pub(super) async fn fit_for_view(
    mut end: CallEnd,
    artifacts: &AttemptArtifacts,
    cancel: &CancellationToken,
) -> CallEnd {
    if end.content.len() <= MAX_RESULT_BYTES {
        let visible = SanitizedText::sanitize(&end.content);
        if visible.len() <= MAX_RESULT_BYTES {
            if let Cow::Owned(changed) = visible {
                end.content = changed.into();
            }
            return end;
        }
    }
    let whole = Bytes::from_owner(Arc::<[u8]>::from(end.content));
    // A tool that wrote an artifact itself has named it in its output.
    let remark = match end.artifact {
        Some(_) => String::new(),
        None => match watchdog::write_artifact(artifacts.write(whole.clone()), cancel).await {
            Ok(artifact) => {
                let pointer = format!("; all {} are artifact {}: ", artifact.bytes, artifact.handle);
                end.artifact = Some(artifact);
                pointer + "`read_artifact` pages it"
            }
            Err(error) => format!("; they could not be kept: {error}"),
        },
    };
    let text = str::from_utf8(&whole).expect("it was a string");
    let (head, tail) = (head(text), tail(text));
    let left_out = text.len() - head.len() - tail.len();
    let (head, tail) = (SanitizedText::sanitize(head), SanitizedText::sanitize(tail));
    end.content = format!("{head}\n[… {left_out} bytes left out{remark} …]\n{tail}").into();
    end
}

/// A beginning that fits after its hidden characters are made visible.
fn head(text: &str) -> &str {
    let mut head = &text[..text.floor_char_boundary(HEAD_BYTES)];
    while SanitizedText::sanitize(head).len() > HEAD_BYTES {
        head = &head[..head.floor_char_boundary(head.len() / 2)];
    }
    head
}

/// An end that fits after its hidden characters are made visible.
fn tail(text: &str) -> &str {
    let mut tail = &text[text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES))..];
    while SanitizedText::sanitize(tail).len() > TAIL_BYTES {
        tail = &tail[tail.ceil_char_boundary(tail.len() / 2)..];
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        doubles::MemoryArtifacts,
        model::{Artifact, CallId, RunId, SessionId},
        port::ArtifactName,
    };

    /// The outcome for a result: the text for the view, and the artifact.
    fn of(content: &str, artifacts: &MemoryArtifacts) -> (CallEnd, Vec<Bytes>) {
        let call = CallId { run: RunId::from_bits(7), iteration: 1, n: 1 };
        let name = ArtifactName { session: SessionId::from_bits(1), call, attempt: 2 };
        let attempt = AttemptArtifacts::new(Arc::new(artifacts.clone()), name);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let cancel = CancellationToken::new();
        let end = runtime.block_on(fit_for_view(CallEnd::ok(content), &attempt, &cancel));
        (end, artifacts.all().into_values().collect())
    }

    /// Checks that the content is shortened to its beginning and its end, and that the artifact holds all of it.
    #[track_caller]
    fn check_cut(content: &str, begins: &str, ends: &str) {
        let (end, kept) = of(content, &MemoryArtifacts::default());
        assert_eq!(kept, [content.as_bytes()]);
        let Some(Artifact { handle, bytes, .. }) = end.artifact else { panic!("no artifact") };
        assert_eq!(bytes, content.len() as u64);
        assert!(end.content.len() <= MAX_RESULT_BYTES, "{} bytes", end.content.len());
        assert!(end.content.starts_with(begins) && end.content.ends_with(ends), "{}", end.content);
        assert!(end.content.contains(&format!("all {bytes} are artifact {handle}")), "{}", end.content);
    }

    #[test]
    fn what_fits_stays() {
        for (content, shown) in [("plain\n\tGröße", "plain\n\tGröße"), ("\u{1b}[2Jgone\r\n", "␛[2Jgone␍\n")]
        {
            let (end, kept) = of(content, &MemoryArtifacts::default());
            assert_eq!((end, kept), (CallEnd::ok(shown), Vec::new()));
        }
        let full = "x".repeat(MAX_RESULT_BYTES);
        assert_eq!(of(&full, &MemoryArtifacts::default()).0, CallEnd::ok(full));
    }

    #[test]
    fn what_does_not_fit_is_kept_whole_and_shown_by_its_ends() {
        check_cut(&format!("first{}last", "x".repeat(MAX_RESULT_BYTES)), "firstxxx", "xxxlast");
        check_cut(&"é".repeat(MAX_RESULT_BYTES), "éé", "éé");
        check_cut(&"\u{1b}".repeat(MAX_RESULT_BYTES), "␛␛", "␛␛");
        check_cut(&"\u{e0041}".repeat(MAX_RESULT_BYTES), "<U+E0041><U+E0041>", "<U+E0041>");
        check_cut(&"x".repeat(10_000_000), "xxx", "xxx");
    }

    #[test]
    fn a_full_disk_is_told() {
        let (end, kept) = of(&"x".repeat(MAX_RESULT_BYTES + 1), &MemoryArtifacts::full_after(1_000));
        assert_eq!((end.artifact, kept), (None, Vec::new()));
        assert!(end.content.contains("could not be kept: no space left on device"), "{}", end.content);
    }
}

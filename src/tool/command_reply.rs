//! The result of a command, formatted for the model within the size of a result, with a reference to the whole output.

use hermod_actors::{
    SanitizedText,
    model::{Artifact, CallEnd, CallStatus, MAX_RESULT_BYTES},
};
use serde::Serialize;

use super::{sandbox_hint::hint, spool::SpooledOutput, typed_tool::ToolContext};
use crate::process::{Capture, CommandResult, ExitCause};

/// Bytes reserved for the text about an artifact.
const ARTIFACT_TEXT_BYTES: usize = 500;

/// The result of a command as JSON for the model.
#[derive(Debug, Serialize)]
struct CommandReply<'a> {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    stdout: String,
    stderr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<FullOutput>,
    /// What the sandbox may have refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

/// The place of the full output, if the reply contains only a part.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum FullOutput {
    /// Without its hash, which is useless to a model.
    Stored {
        handle: String,
        bytes: u64,
        /// Bytes of the end that the artifact lacks.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<u64>,
    },
    Lost {
        error: String,
    },
}

/// The end of a call whose command ran under these rules. `left_out` counts the bytes that the command wrote after the spooled output.
pub(super) async fn command_end(
    mut result: CommandResult,
    spooled: SpooledOutput,
    left_out: u64,
    ToolContext { invocation, settings }: &ToolContext,
) -> CallEnd {
    let artifacts = &invocation.artifacts;
    let status = match result.cause {
        ExitCause::Exit => CallStatus::Ok,
        ExitCause::Timeout => CallStatus::Error,
        ExitCause::Cancel => CallStatus::Stopped,
    };
    let hint = settings.sandbox.as_ref().and_then(|rules| hint(&mut result, rules));
    let (mut reply, is_whole) = fit_output(&mut result, hint.as_deref());
    let full_output = match spooled {
        SpooledOutput::Inline(_) if is_whole => None,
        SpooledOutput::Inline(bytes) => {
            Some(artifacts.write(bytes).await.map(|artifact| (artifact, left_out)))
        }
        SpooledOutput::Stored(artifact, more) => Some(Ok((artifact, left_out + more))),
        SpooledOutput::Lost(error) => Some(Err(error)),
    };
    let artifact = full_output.as_ref().and_then(|full_output| Some(full_output.as_ref().ok()?.0.clone()));
    reply.artifact = full_output.map(|full_output| match full_output {
        Ok((Artifact { handle, bytes, .. }, left_out)) => {
            FullOutput::Stored { handle, bytes, left_out: (left_out > 0).then_some(left_out) }
        }
        Err(error) => FullOutput::Lost { error: format!("the whole output could not be kept: {error}") },
    });
    CallEnd { artifact, ..CallEnd::new(status, json(&reply)) }
}

/// The reply with as much output as fits, and whether that is all of it.
fn fit_output<'a>(result: &mut CommandResult, hint: Option<&'a str>) -> (CommandReply<'a>, bool) {
    let (out, err) = (result.stdout.total(), result.stderr.total());
    let mut max_bytes = MAX_RESULT_BYTES;
    loop {
        // Each stream may have half, and what the other leaves unused.
        let half = max_bytes / 2;
        let share = |other: u64| {
            usize::try_from(other).map_or(half, |other| max_bytes.saturating_sub(other).max(half))
        };
        let (stdout, out_is_whole) = truncate_stream(&mut result.stdout, share(err));
        let (stderr, err_is_whole) = truncate_stream(&mut result.stderr, share(out));
        let reply = CommandReply {
            exit_code: result.exit_code,
            signal: result.signal,
            timed_out: result.cause == ExitCause::Timeout,
            stdout,
            stderr,
            artifact: None,
            hint,
        };
        if json(&reply).len() + ARTIFACT_TEXT_BYTES <= MAX_RESULT_BYTES {
            return (reply, out_is_whole && err_is_whole);
        }
        // Quotes, escapes and visible control characters need more space than their bytes.
        max_bytes = max_bytes * 3 / 4;
    }
}

fn json(reply: &CommandReply<'_>) -> String {
    serde_json::to_string(reply).expect("numbers and strings are JSON")
}

fn truncate_stream(stream: &mut Capture, max_bytes: usize) -> (String, bool) {
    let truncated = stream.truncated(max_bytes);
    let mut visible = SanitizedText::of(truncated.head);
    if truncated.left_out > 0 {
        visible.push(format!("\n[… {} bytes left out …]\n", truncated.left_out).as_bytes());
        visible.push(truncated.tail);
    }
    (visible.text, truncated.left_out == 0)
}

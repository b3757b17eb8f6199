//! The result of a command, formatted for the model within the size of a result, with a reference to the whole output.

use hermod_actors::{
    SanitizedText,
    model::{Artifact, CallEnd, CallStatus, MAX_RESULT_BYTES},
    port::AttemptArtifacts,
};
use serde::Serialize;

use super::spool::SpooledOutput;
use crate::process::{Capture, CommandResult, ExitCause};

/// Bytes reserved for the text about an artifact.
const ARTIFACT_TEXT_BYTES: usize = 500;

/// The result of a command as JSON for the model.
#[derive(Debug, Serialize)]
struct CommandReply {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    stdout: String,
    stderr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<FullOutput>,
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

/// The end of a call whose command ran.
pub(super) async fn command_end(
    mut ran: CommandResult,
    spooled: SpooledOutput,
    shelf: &AttemptArtifacts,
) -> CallEnd {
    let status = match ran.cause {
        ExitCause::Exit => CallStatus::Ok,
        ExitCause::Timeout => CallStatus::Error,
        ExitCause::Cancel => CallStatus::Stopped,
    };
    let (mut reply, is_whole) = fit_output(&mut ran);
    let whole = match spooled {
        SpooledOutput::Inline(..) if is_whole => None,
        SpooledOutput::Inline(bytes, left_out) => {
            Some(shelf.write(bytes).await.map(|artifact| (artifact, left_out)))
        }
        SpooledOutput::Stored(artifact, left_out) => Some(Ok((artifact, left_out))),
        SpooledOutput::Lost(error) => Some(Err(error)),
    };
    let artifact = whole.as_ref().and_then(|whole| Some(whole.as_ref().ok()?.0.clone()));
    reply.artifact = whole.map(|whole| match whole {
        Ok((Artifact { handle, bytes, .. }, left_out)) => {
            FullOutput::Stored { handle, bytes, left_out: (left_out > 0).then_some(left_out) }
        }
        Err(error) => FullOutput::Lost { error: format!("the whole output could not be kept: {error}") },
    });
    CallEnd { artifact, ..CallEnd::new(status, json(&reply)) }
}

/// The reply with as much output as fits, and whether that is all of it.
fn fit_output(ran: &mut CommandResult) -> (CommandReply, bool) {
    let (out, err) = (ran.stdout.total(), ran.stderr.total());
    let mut room = MAX_RESULT_BYTES;
    loop {
        // Each stream may have half, and what the other leaves unused.
        let half = room / 2;
        let of =
            |other: u64| usize::try_from(other).map_or(half, |other| room.saturating_sub(other).max(half));
        let (stdout, out_is_whole) = truncate_stream(&mut ran.stdout, of(err));
        let (stderr, err_is_whole) = truncate_stream(&mut ran.stderr, of(out));
        let reply = CommandReply {
            exit_code: ran.exit_code,
            signal: ran.signal,
            timed_out: ran.cause == ExitCause::Timeout,
            stdout,
            stderr,
            artifact: None,
        };
        if json(&reply).len() + ARTIFACT_TEXT_BYTES <= MAX_RESULT_BYTES {
            return (reply, out_is_whole && err_is_whole);
        }
        // Quotes, escapes and visible control characters need more space than their bytes.
        room = room * 3 / 4;
    }
}

fn json(reply: &CommandReply) -> String {
    serde_json::to_string(reply).expect("numbers and strings are JSON")
}

fn truncate_stream(stream: &mut Capture, room: usize) -> (String, bool) {
    let shown = stream.truncated(room);
    let mut visible = SanitizedText::of(shown.head);
    if shown.left_out > 0 {
        visible.push(format!("\n[… {} bytes left out …]\n", shown.left_out).as_bytes());
        visible.push(shown.tail);
    }
    (visible.text, shown.left_out == 0)
}

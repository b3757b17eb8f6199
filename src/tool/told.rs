//! What the model reads of a command.

use hermod_actors::{
    Visible,
    model::{Artifact, CallEnd, CallStatus, MAX_OUTPUT},
    port::Shelf,
};
use serde::Serialize;

use super::spool::Spooled;
use crate::process::{Capture, Cause, Ran};

/// Bytes that the words about an artifact take.
const FOR_ARTIFACT: usize = 500;

/// What the model reads of a command.
#[derive(Debug, Serialize)]
struct Told {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    stdout: String,
    stderr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<Whole>,
}

/// Where the whole output is, if it is not shown.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Whole {
    /// Without its hash, which is of no use to a model.
    Kept {
        handle: String,
        bytes: u64,
        /// Bytes of the end that it does not have.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<u64>,
    },
    Lost {
        error: String,
    },
}

/// The end of a call whose command ran.
pub(super) async fn told(mut ran: Ran, spooled: Spooled, shelf: &Shelf) -> CallEnd {
    let status = match ran.cause {
        Cause::Exit => CallStatus::Ok,
        Cause::Timeout => CallStatus::Error,
        Cause::Cancel => CallStatus::Stopped,
    };
    let (mut told, is_whole) = fitting(&mut ran);
    let whole = match spooled {
        Spooled::Short(..) if is_whole => None,
        Spooled::Short(bytes, left_out) => Some(shelf.keep(bytes).await.map(|artifact| (artifact, left_out))),
        Spooled::Kept(artifact, left_out) => Some(Ok((artifact, left_out))),
        Spooled::Lost(error) => Some(Err(error)),
    };
    let artifact = whole.as_ref().and_then(|whole| Some(whole.as_ref().ok()?.0.clone()));
    told.artifact = whole.map(|whole| match whole {
        Ok((Artifact { handle, bytes, .. }, left_out)) => {
            Whole::Kept { handle, bytes, left_out: (left_out > 0).then_some(left_out) }
        }
        Err(error) => Whole::Lost { error: format!("the whole output could not be kept: {error}") },
    });
    CallEnd { artifact, ..CallEnd::new(status, json(&told)) }
}

/// As much of the output as fits, and whether that is all.
fn fitting(ran: &mut Ran) -> (Told, bool) {
    let (out, err) = (ran.stdout.total(), ran.stderr.total());
    let mut room = MAX_OUTPUT;
    loop {
        // Each may have half, and what the other leaves.
        let half = room / 2;
        let of =
            |other: u64| usize::try_from(other).map_or(half, |other| room.saturating_sub(other).max(half));
        let (stdout, out_is_whole) = text(&mut ran.stdout, of(err));
        let (stderr, err_is_whole) = text(&mut ran.stderr, of(out));
        let told = Told {
            exit_code: ran.exit_code,
            signal: ran.signal,
            timed_out: ran.cause == Cause::Timeout,
            stdout,
            stderr,
            artifact: None,
        };
        if json(&told).len() + FOR_ARTIFACT <= MAX_OUTPUT {
            return (told, out_is_whole && err_is_whole);
        }
        // Quotes and what is made visible take more room than the bytes had.
        room = room * 3 / 4;
    }
}

fn json(told: &Told) -> String {
    serde_json::to_string(told).expect("numbers and strings are JSON")
}

fn text(stream: &mut Capture, room: usize) -> (String, bool) {
    let shown = stream.shown(room);
    let mut visible = Visible::of(shown.head);
    if shown.left_out > 0 {
        visible.push(format!("\n[… {} bytes left out …]\n", shown.left_out).as_bytes());
        visible.push(shown.tail);
    }
    (visible.text, shown.left_out == 0)
}

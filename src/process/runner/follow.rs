//! Forwards the output file of a runner while the runner writes it.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{sync::watch, time::timeout};

use super::live_runner::RunnerOutcome;
use crate::{
    files::{IoResult as _, off_thread, open_regular},
    process::Tee,
};

/// Interval between two checks for new output.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const CHUNK_BYTES: usize = 256 << 10;

/// Waits for `end` and forwards the file `output` to `tee` meanwhile, as long as `tee` has a receiver. At the end it
/// forwards a short output that is in the outcome.
pub async fn follow(end: impl Future<Output = RunnerOutcome>, output: &Path, tee: Tee) -> RunnerOutcome {
    let (done, is_done) = watch::channel(());
    let end = async {
        let outcome = end.await;
        drop(done);
        outcome
    };
    let (outcome, read) = tokio::join!(end, forward(output, &tee, is_done));
    if let Err(error) = read {
        tracing::warn!(output = %output.display(), %error, "the output of a command cannot be read");
    }
    if let RunnerOutcome::Ended(exit) = &outcome {
        tee.push(&exit.inline_output, None);
    }
    outcome
}

async fn forward(output: &Path, tee: &Tee, mut is_done: watch::Receiver<()>) -> io::Result<()> {
    let (mut file, mut offset) = (None, 0);
    loop {
        // The last read comes after the end was seen, so it includes all that was written before.
        let is_over = timeout(POLL_INTERVAL, is_done.changed()).await.is_ok();
        if file.is_none() {
            file = open(output).await?;
        }
        if let Some(file) = &file {
            offset = catch_up(file, offset, tee).await?;
        }
        if is_over || !tee.is_wanted() {
            return Ok(());
        }
    }
}

/// Forwards the new bytes and returns the next offset.
async fn catch_up(file: &Arc<File>, mut offset: u64, tee: &Tee) -> io::Result<u64> {
    while tee.is_wanted() {
        let bytes = read(Arc::clone(file), offset).await?;
        if bytes.is_empty() {
            break;
        }
        offset += bytes.len() as u64;
        let slot = tee.reserve().await;
        tee.push(&bytes, slot);
    }
    Ok(offset)
}

async fn open(output: &Path) -> io::Result<Option<Arc<File>>> {
    let output = output.to_owned();
    let file = off_thread(move || open_regular(&output).if_exists()).await?;
    Ok(file.map(Arc::new))
}

async fn read(file: Arc<File>, offset: u64) -> io::Result<Bytes> {
    off_thread(move || {
        let remaining = file.metadata()?.len().saturating_sub(offset);
        let mut bytes = vec![0; usize::try_from(remaining).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)];
        let count = file.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok(bytes.into())
    })
    .await
}

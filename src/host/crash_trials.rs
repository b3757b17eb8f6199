//! What the owner does at its start about suspects: it finds the last progress of a run, chooses the first to try, and
//! force-fails crash-looping runs. `crash_loop/` counts the crashes; `resume/probation.rs` carries out the trials.

use hermod_actors::{
    RunError, Runtime,
    model::{RunId, RunRow, RunState, Seq},
};

use super::{error::HostError, notes::NoteSink};
use crate::{
    control::StoreReader,
    crash_loop::{CrashHistoryFile, Trial},
};

/// The number of the record of the run's last progress, 0 if it has none or its records cannot be read. `None` if the
/// run has ended, or its row is missing or cannot be read.
pub(super) async fn last_progress(reader: &StoreReader, run: RunId) -> Option<Seq> {
    let row = reader.read(|rows| rows.run(run)).await.ok()??;
    if row.state == RunState::Ended {
        return None;
    }
    let mut last = 0;
    let read = reader.records(row.session, row.first, |seq, record| {
        if record.body.run() == Some(run) && record.body.is_progress() {
            last = seq;
        }
    });
    if let Err(error) = read.await {
        tracing::warn!(%run, %error, "its records cannot be read");
        return Some(0);
    }
    Some(last)
}

/// A trial of the first of these runs that has not ended. The later runs of its session wait for it.
pub async fn first_trial(reader: &StoreReader, rows: impl IntoIterator<Item = &RunRow>) -> Option<Trial> {
    for row in rows {
        if let Some(step) = last_progress(reader, row.id).await {
            return Some(Trial { run: row.id, step, is_alone: true, has_min_uptime: false });
        }
    }
    None
}

/// Force-fails the unfinished runs that are crash-looping, before their sessions are opened.
pub async fn fail_crash_looping(
    runtime: &Runtime,
    notes: &dyn NoteSink,
    crash_history: &mut CrashHistoryFile,
    open: impl IntoIterator<Item = &RunRow> + Clone,
) -> Result<(), HostError> {
    for (run, deaths) in crash_history.crash_looping() {
        if !open.clone().into_iter().any(|row| row.id == run) {
            continue;
        }
        let error = format!(
            "the process died {deaths} times while this run alone was under way, always at the same step"
        );
        notes.note(&format!("given up  run {run}: {error}"));
        match runtime.force_fail(run, &error).await {
            Ok(()) => crash_history.clear(run),
            Err(RunError::WaitTimedOut(_)) => tracing::error!(%run, "it could not be ended"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

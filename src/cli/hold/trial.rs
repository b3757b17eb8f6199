use hermod_actors::{
    RunError, Runtime,
    model::{RunId, RunRow, RunState, Seq},
    port::Read,
};

use crate::{
    cli::{exit::Failure, output::say},
    control::{Fault, Reader},
    deaths::{Keeper, Trial, is_step},
};

/// The last step that a run has made, 0 if none; `None` if it has ended. What cannot be read has made none.
pub(super) async fn step(reader: &Reader, run: RunId) -> Option<Seq> {
    let row = reader.runs(Read::Run(run)).await.ok()?.pop()?;
    if row.state == RunState::Ended {
        return None;
    }
    let mut last = 0;
    let read = reader.records(row.session, row.first, |(seq, record)| {
        if record.body.run() == Some(run) && is_step(&record.body) {
            last = seq;
        }
        Ok::<(), Fault>(())
    });
    if let Err(error) = read.await {
        tracing::warn!(%run, %error, "its records cannot be read");
        return Some(0);
    }
    Some(last)
}

/// A trial of the first of these runs that has not ended: those behind it in their session wait for it.
pub(crate) async fn first_trial(reader: &Reader, rows: impl IntoIterator<Item = &RunRow>) -> Option<Trial> {
    for row in rows {
        if let Some(step) = step(reader, row.id).await {
            return Some(Trial { run: row.id, step, alone: true, long: false });
        }
    }
    None
}

/// Ends those of the unfinished runs of which the process has died too often, before their sessions are opened.
pub(crate) async fn end_condemned(
    runtime: &Runtime,
    deaths: &mut Keeper,
    open: impl IntoIterator<Item = &RunRow> + Clone,
) -> Result<(), Failure> {
    for (run, died) in deaths.condemned() {
        if !open.clone().into_iter().any(|row| row.id == run) {
            continue;
        }
        let error = format!(
            "the process died {died} times while this run alone was under way, always at the same step"
        );
        say(format!("given up  run {run}: {error}"));
        match runtime.give_up(run, &error).await {
            Ok(()) => deaths.clear(run),
            Err(RunError::StillRunning(_)) => tracing::error!(%run, "it could not be ended"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
